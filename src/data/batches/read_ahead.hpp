// SPDX-License-Identifier: Apache-2.0
// Reads micro-batches in advance, on its own thread, so that a step does not wait for a disk.
//
// The thread fills blocks (tokens and targets of one micro-batch) in the order in which steps will
// need them, up to `ahead` of them. When all are full, it waits until half of them have been taken:
// waking it for every block would cost a step more time than the block. take() returns the next
// block. If a step needs another one (after a rewind), the blocks are dropped and the thread starts
// from there.
//
// 1. What take() returns does not depend on the thread: it is Dataset::fill() of the samples.
// 2. Memory is bounded: the blocks are allocated once. Nothing is read before the first take().
// 3. An error in the thread (StorageError) is thrown by the take() that needs the block.
//
// Threads: one thread calls take(). The dataset outlives the object.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

#include "batches/batches.hpp"
#include "batches/dataset.hpp"

namespace trireme::batches {

/// Which samples one rank needs in each step.
struct Consumption {
  BatchSizes sizes;
  int rank = 0;
  Batches of = {};  ///< all but the number of sequences

  [[nodiscard]] Batches batches(std::int64_t step) const { return of_size(sizes.at(step)); }
  [[nodiscard]] Batches of_size(std::int64_t sequences) const {
    Batches one = of;
    one.sequences = sequences;
    return one;
  }
};

class ReadAhead {
 public:
  struct Block {
    std::int64_t step = 0, step_first = -1, micro = 0;  ///< as in take()
    Batches::Micro samples;
    std::vector<std::int32_t> tokens, targets;  ///< of as many samples as a micro-batch has at most
    /// Samples that are filled.
    [[nodiscard]] std::int64_t rows() const { return std::max<std::int64_t>(samples.count, 1); }
    std::int64_t bytes = 0;  ///< of text, in the targets
    std::exception_ptr problem;
  };

  /// `bytes_of`: bytes of text of each token; tokens beyond it have none.
  ReadAhead(const Dataset& dataset, Consumption consumption, std::vector<std::int32_t> bytes_of);

  /// The block of micro-step `micro` of step `step`, which begins with sample `step_first`; until
  /// the next take().
  const Block& take(std::int64_t step, std::int64_t step_first, std::int64_t micro);
  [[nodiscard]] std::size_t ahead() const { return blocks_.size() - 1; }

 private:
  void work(const std::stop_token& stop);
  void fill(Block& block) const;
  /// Whether the thread should fill blocks again. Under the lock.
  [[nodiscard]] bool is_low() const;
  /// Under the lock: the block after the next one in the order of use.
  void advance();

  const Dataset& dataset_;
  const Consumption consumption_;
  const std::vector<std::int32_t> bytes_of_;
  std::vector<Block> blocks_;  // a ring

  std::mutex mutex_;
  std::condition_variable filled_;
  std::condition_variable_any freed_;
  std::size_t taken_ = 0, made_ = 0;  // counts; block i is blocks_[i % size]
  std::int64_t next_step_ = 0, next_first_ = 0, next_micro_ = 0;
  std::uint64_t restarts_ = 0;  // number of restarts at another block
  bool holds_ = false;
  std::jthread thread_;  // last: it uses the other members
};

std::int64_t bytes_of_tokens(std::span<const std::int32_t> tokens,
                             std::span<const std::int32_t> bytes_of);

}  // namespace trireme::batches
