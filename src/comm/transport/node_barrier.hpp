// SPDX-License-Identifier: Apache-2.0
// Meeting points of the ranks of a node, through counters in shared memory.
//
// Every rank has a seat with one counter: how many points it has reached. Reaching a point is one
// store; waiting for a rank is reading its seat until it is far enough. A waiter spins and
// then sleeps in the kernel on the seat (a futex), so a late rank costs the others no core.
//
// 1. All ranks pass the same points in the same order; numbers wrap around.
// 2. What a rank wrote before reach() is visible to a rank that waited for it (release, acquire).
// 3. A seat's owner wakes sleepers only when there are some: both sides order their store before
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
  /// Collective over `node`, of all nodes alike. Borrows `progress`, which keeps the deadline.
  NodeBarrier(MPI_Comm node, Progress& progress);

  /// This rank has come to its next point.
  void reach();
  /// Until that rank has come to the point that this rank reached last.
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
