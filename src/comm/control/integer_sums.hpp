// SPDX-License-Identifier: Apache-2.0
// Small sums of integers over all ranks: the norm and the loss of a step, 1.1 KB of words that add
// up exactly (ops/optimizer/order_free_words.hpp), so their order is MPI's own.
//
// MPI's non-blocking all-reduce, polled as every other collective is, sends a number of messages
// per rank that grows as the logarithm of the ranks; every rank ends with the same bits.
//
// MPI works on a copy, because a collective that was given up is still under way and a late rank's
// message may yet come.
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

  /// int64, in place, on every rank. The first call with so many elements allocates.
  void all_reduce(View values);

 private:
  MPI_Comm comm_;
  Progress& progress_;
  std::vector<std::int64_t> room_;
};

}  // namespace trireme::comm
