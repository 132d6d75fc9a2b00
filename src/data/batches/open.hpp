// SPDX-License-Identifier: Apache-2.0
// From the deck section `data` to token streams, in two halves, because only one rank may write,
// and only one need read every file:
//
//     if (rank == 0) prepared = prepare_sources(setup, log);  // finds files, builds caches, checks
//     all: prepared = broadcast(prepared); auto sources = open_sources(setup, prepared);
//
// One rank prepares per file system that holds the cache directory. Text goes through a cache file
// (see token_cache.hpp) whose name follows from the deck alone; token files are read where they
// are, and opened when they are first read; synthetic tokens need no file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/log.hpp"

#include "batches/config.hpp"
#include "batches/dataset.hpp"
#include "text/tokenizer.hpp"
#include "tokens/token_files.hpp"
#include "tokens/token_stream.hpp"

namespace trireme::batches {

struct Setup {
  DataConfig config;
  /// Where `data.cache: auto` puts cache files.
  std::string default_cache_directory;
  /// run.seed; only synthetic tokens depend on it.
  std::uint64_t seed = 0;
  /// model.vocabulary: tokens at or above it are findings.
  std::int64_t vocabulary = 0;
  /// model.context, for `data.rows: documents`.
  std::int64_t context = 0;
  /// model.document_mask: where documents begin must be in the tokens.
  bool document_mask = false;
  /// What text is encoded with, and what made the tokens; null: bytes, and not known.
  std::shared_ptr<const text::Tokenizer> tokenizer = {};
};

/// What one rank found, for each source in the order of the deck.
struct Prepared {
  std::vector<tokens::TokenFiles> sources;

  auto fields() { return std::tie(sources); }
};

struct Sources {
  std::vector<Stream> train;  ///< several: a mixture
  std::optional<Stream> validation;
};

/// Checks the sources, every byte of them, and builds the caches of text where they are missing,
/// older than the text, or damaged; logs what it did in a line each. Throws UserError with every
/// finding about a source at once (missing, unreadable, empty, a file in the cache's place that is
/// none, tokens outside the vocabulary), StorageError when a cache cannot be read or written.
Prepared prepare_sources(const Setup& setup, Log& log);

/// Opens what prepare_sources() has checked. Throws UserError when it is not there or damaged.
Sources open_sources(const Setup& setup, const Prepared& prepared);

/// The cache file that belongs to text sources; empty without text.
std::string cache_path(const Setup& setup, const FilesConfig& files);

}  // namespace trireme::batches
