// SPDX-License-Identifier: Apache-2.0
// From the deck section `data` to a TokenStream, in two halves, because only one rank may write:
//
//     if (rank == 0) sums = prepare_tokens(setup, log);   // finds files, builds the cache, checks
//     all sums = broadcast(sums); auto stream = open_tokens(setup, sums);             // every
//     rank: opens what is there
//
// One rank prepares per file system that holds the cache directory. Text goes through a cache file
// (see token_cache.hpp) whose name follows from the deck alone; shards are read where they lie;
// synthetic tokens need no file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/log.hpp"

#include "data/config.hpp"
#include "data/llmc_shards.hpp"
#include "data/token_stream.hpp"

namespace trireme::data {

struct Setup {
  DataConfig config;
  /// Where `data.cache: auto` puts the cache file.
  std::string default_cache_directory;
  /// run.seed; only synthetic tokens depend on it.
  std::uint64_t seed = 0;
  /// model.vocabulary: tokens at or above it are findings.
  std::int64_t vocabulary = 0;
};

/// Checks the sources, every byte of them, and builds the cache of text where it is missing, older
/// than the text, or damaged; says what it did in one line. Throws UserError with every finding
/// about the sources at once (missing, unreadable, empty, a file in the cache's place that is none,
/// tokens outside the vocabulary), StorageError when the cache cannot be read or written. Returns
/// the hashes of shards; nothing for other sources.
ShardSums prepare_tokens(const Setup& setup, Log& log);

/// Opens what prepare_tokens() has checked. Throws UserError when it is not there or damaged.
std::unique_ptr<TokenStream> open_tokens(const Setup& setup, const ShardSums& sums);

/// The cache file that belongs to the setup's text sources; empty without text.
std::string cache_path(const Setup& setup);

}  // namespace trireme::data
