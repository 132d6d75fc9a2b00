// SPDX-License-Identifier: Apache-2.0
// From the deck section `data` to a TokenStream, in two halves, because only one rank may write:
//
//     if (rank == 0) prepare_tokens(setup, log);   // finds the files, builds the cache, checks all
//     communicator.barrier();
//     auto stream = open_tokens(setup);            // every rank: maps what is there
//
// One rank prepares per file system that holds the cache directory. Text goes through a cache file
// (see token_cache.hpp) whose name follows from the deck alone; shards are mapped where they lie;
// synthetic tokens need no file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/log.hpp"

#include "data/config.hpp"
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

/// Checks the sources and builds the cache of text where it is missing or older than the text; says
/// what it did in one line. Throws UserError with every finding about the sources at once (missing,
/// unreadable, empty, damaged or foreign cache, tokens outside the vocabulary), StorageError when
/// the cache cannot be written.
void prepare_tokens(const Setup& setup, Log& log);

/// Maps what prepare_tokens() has checked. Throws UserError when it is not there or damaged.
std::unique_ptr<TokenStream> open_tokens(const Setup& setup);

/// The cache file that belongs to the setup's text sources; empty without text.
std::string cache_path(const Setup& setup);

}  // namespace trireme::data
