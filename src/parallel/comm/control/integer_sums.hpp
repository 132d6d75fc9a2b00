// SPDX-License-Identifier: Apache-2.0
// Small exact sums of integers over all ranks, for the norm and the loss of a step: 1.1 KB of words
// (ops/optimizer/order_free_words.hpp) that MPI may add in any order.
//
// Uses MPI's non-blocking all-reduce, polled like every other collective. Its number of messages
// per rank is logarithmic in the number of ranks; every rank gets the same bits.
//
// MPI works on a copy, because after a timeout the collective is still active, and may receive a
// late rank's message.
#pragma once

#include <cstdint>
#include <vector>

#include <mpi.h>

#include "base/view.hpp"

#include "comm/control/progress.hpp"

namespace trireme::comm {

class IntegerSums {
 public:
  /// Borrows both.
  IntegerSums(MPI_Comm comm, Progress& progress) : comm_(comm), progress_(progress) {}

  /// int64, in place, on every rank. Allocates if no earlier call had as many elements.
  void all_reduce(View values);

 private:
  MPI_Comm comm_;
  Progress& progress_;
  std::vector<std::int64_t> buffer_;
};

}  // namespace trireme::comm
