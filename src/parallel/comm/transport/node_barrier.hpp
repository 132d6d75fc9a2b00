// SPDX-License-Identifier: Apache-2.0
// Barriers for the ranks of a node, with counters in shared memory.
//
// Every rank has a counter of its arrivals. Arriving is one store; waiting for a rank is reading
// its counter until the count is large enough. A waiting rank spins and then sleeps in the kernel
// on the counter (a futex), so waiting for a late rank uses no core.
//
// 1. All ranks arrive at the same points in the same order; the counters wrap around.
// 2. Writes of a rank before arrive() are visible to a rank that waited for it (release, acquire).
// 3. The owner of a counter wakes sleepers only if there are any: both sides order their store
//    before their load, so either the owner reads the sleeper's flag or the sleeper reads the new
//    count.
#pragma once

#include <atomic>
#include <cstdint>

#include <mpi.h>

#include "comm/control/progress.hpp"
#include "comm/transport/shared_segment.hpp"

namespace trireme::comm {

class NodeBarrier {
 public:
  /// Collective over `world`. Borrows `progress`, which waits for the ranks of `node`.
  NodeBarrier(MPI_Comm node, MpiWorld& world, Progress& progress);

  /// Records that this rank has arrived at its next point.
  void arrive();
  /// Waits until that rank has arrived at the point that this rank arrived at last.
  void wait_for(int local_rank);
  void arrive_and_wait();

 private:
  struct alignas(128) Counter {
    std::atomic<std::uint32_t> arrivals;
    std::atomic<std::uint32_t> sleepers;
  };
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

  [[nodiscard]] Counter& counter(int local_rank) const {
    return *reinterpret_cast<Counter*>(segment_.piece(local_rank));
  }

  SharedSegment segment_;
  Progress& progress_;
  const int rank_, size_;
  std::uint32_t point_ = 0;
};

}  // namespace trireme::comm
