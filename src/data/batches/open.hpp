// SPDX-License-Identifier: Apache-2.0
// From the deck section `data` to token streams.
//
// Text is encoded by all ranks into a cache (corpus/tokenize.hpp), whose name follows from the text
// and the deck; token files are read where they are; synthetic tokens need no file. A cache and
// files that were checked before are opened without reading their tokens (tokens/token_index.hpp).
// All ranks must see the cache directory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/log.hpp"

#include "comm/control/world.hpp"

#include "batches/config.hpp"
#include "batches/dataset.hpp"
#include "text/tokenizer.hpp"
#include "tokens/token_files.hpp"
#include "tokens/token_stream.hpp"

namespace trireme::batches {

struct Setup {
  DataConfig config;
  std::string default_cache_directory;  ///< where `data.cache: auto` puts cache files
  std::uint64_t seed = 0;               ///< run.seed; only synthetic tokens depend on it
  std::int64_t vocabulary = 0;          ///< model.vocabulary: tokens at or above it are findings
  std::int64_t context = 0;             ///< model.context, for `data.rows: documents`
  bool document_mask = false;  ///< model.document_mask: tokens must show where documents begin
  /// What text is encoded with, and what made the tokens; null: bytes, and not known.
  std::shared_ptr<const text::Tokenizer> tokenizer = {};
};

/// Collective. Encodes text that has no cache, checks token files that were not checked before, and
/// logs what it did in a line each. Throws UserError with every finding about a source at once
/// (missing, unreadable, empty, tokens outside the vocabulary), StorageError when a file cannot be
/// read or written.
Sources open_sources(const Setup& setup, comm::World& world, Log& log);

}  // namespace trireme::batches
