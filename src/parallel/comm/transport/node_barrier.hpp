// SPDX-License-Identifier: Apache-2.0
// Barriers for the ranks of a node, with counters in shared memory.
//
// Every rank has a seat with one counter: the number of points that it has reached. Reaching a
// point is one store; waiting for a rank is reading its seat until the count is large enough. A
// waiting rank spins and then sleeps in the kernel on the seat (a futex), so waiting for a late
// rank uses no core.
//
// 1. All ranks reach the same points in the same order; the counters wrap around.
// 2. Writes of a rank before reach() are visible to a rank that waited for it (release, acquire).
// 3. The owner of a seat wakes sleepers only if there are any: both sides order their store before
//    their load, so either the owner reads the sleeper's flag or the sleeper reads the new count.
#pragma once

#include <atomic>
#include <cstdint>

#include <mpi.h>

#include "comm/control/progress.hpp"
#include "comm/transport/shared_segment.hpp"

namespace trireme::comm {

class NodeBarrier {
 public:
  /// Collective over `node`, on all nodes. Borrows `progress`, which has the deadline.
  NodeBarrier(MPI_Comm node, Progress& progress);

  /// Records that this rank has reached its next point.
  void reach();
  /// Waits until that rank has reached the point that this rank reached last.
  void wait_for(int local_rank);
  /// reach(), then wait for all ranks.
  void meet();

 private:
  struct alignas(128) Seat {
    std::atomic<std::uint32_t> reached;
    std::atomic<std::uint32_t> sleepers;
  };
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

  [[nodiscard]] Seat& seat(int local_rank) const {
    return *reinterpret_cast<Seat*>(segment_.piece(local_rank));
  }

  SharedSegment segment_;
  Progress& progress_;
  int rank_ = 0;
  int size_ = 1;
  std::uint32_t point_ = 0;
};

}  // namespace trireme::comm
