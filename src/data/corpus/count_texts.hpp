// SPDX-License-Identifier: Apache-2.0
// The pieces of texts, counted on any number of threads and ranks.
//
// The texts come in blocks, which are distributed over ranks and threads; the first rank adds up
// the counts. The result does not depend on the numbers of ranks and threads. The caller cuts the
// texts into blocks where a piece always ends (pieces.hpp, 3.) and between texts.
#pragma once

#include <cstdint>
#include <functional>

#include "comm/control/world.hpp"

#include "corpus/counts.hpp"
#include "corpus/text_blocks.hpp"
#include "text/pieces.hpp"

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
  /// Called about once a second by the calling thread.
  std::function<void(const CountProgress&)> progress;
};

struct CountedCorpus {
  KeptPieces kept;  ///< on the first rank
  int passes = 0;
  std::int64_t bytes = 0, pieces = 0, too_long = 0;  ///< of text, on all ranks together
};

/// Collective; the same texts on every rank. Throws what reading them throws, and UserError when
/// the memory is too little.
CountedCorpus count_texts(const TextFileBlocks& texts,
                          const CountRequest& request,
                          comm::World& world);

}  // namespace trireme::corpus
