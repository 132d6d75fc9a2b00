// SPDX-License-Identifier: Apache-2.0
// The pieces of text files, counted on any number of threads and ranks: of the texts that `tokenize`
// reads, through the same reader.
//
// The files are cut into blocks, where `tokenize` may cut them (tokens/documents.hpp), which are
// distributed over ranks and threads; a compressed file is a single block. The first rank adds up
// the counts.
//
// 1. No piece reaches from one block into another: the result does not depend on the size of blocks
//    and on the numbers of ranks and threads.
// 2. A file whose size has changed since it was listed is an error, never a shorter text.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "comm/control/world.hpp"

#include "corpus/counts.hpp"
#include "text/pieces.hpp"
#include "tokens/sources.hpp"
#include "tokens/text_format.hpp"

namespace trireme::corpus {

/// Of this rank, in this pass over the corpus.
struct CountProgress {
  int pass = 1;
  int classes_done = 0;  ///< of PieceCounts::classes, in earlier passes
  std::int64_t bytes = 0, total_bytes = 0;
};

struct CountRequest {
  text::Pattern pattern = text::Pattern::gpt2;
  int threads = 1;
  std::int64_t memory_bytes = std::int64_t{4} << 30U;  ///< of each rank
  std::int64_t block_bytes = std::int64_t{4} << 20U;
  /// Called about once a second by the calling thread.
  std::function<void(const CountProgress&)> progress;
};

struct CountedCorpus {
  KeptPieces kept;  ///< on the first rank
  int passes = 0;
  std::int64_t bytes = 0, pieces = 0, too_long = 0;  ///< of text, on all ranks together
};

/// Collective; the same files on every rank. Throws UserError for damaged compression, for what is
/// not a JSON line with the field, and when the memory is too little; StorageError.
CountedCorpus count_texts(const std::vector<tokens::TextFile>& files,
                          const tokens::TextFormat& format,
                          const CountRequest& request,
                          comm::World& world);

}  // namespace trireme::corpus
