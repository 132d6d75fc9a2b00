// SPDX-License-Identifier: Apache-2.0
// Reduce-scatter and all-gather around a ring of non-blocking messages, chunked and pipelined.
//
// A block is what one rank of the ring ends up owning: the shard of the bucket that has its number
// in the world. Both walks take size-1 steps; in each, every rank sends one block to its right
// neighbour and receives one from its left. The chunks of all steps form one sequence per
// direction, so chunk c of step s+1 leaves as soon as chunk c of step s has arrived: the pipe
// never runs dry between steps.
//
//   reduce-scatter  step s sends block r-s-1, receives block r-s-2 and adds it in place
//   all-gather      step s sends block r-s, receives block r-s-1 in place
//
// 1. Messages between two ranks are sent and received in the same order, so one tag is enough.
// 2. At most `window` messages per direction are under way; a neighbour that comes late may find
//    one block's messages waiting.
// 3. Scratch is allocated at construction; a collective allocates nothing.
// 4. The sum runs around the ring, starting after the owner: the same bits run to run, but not in
//    rank order; fp32 only, because partial sums travel.
//
// Source: Open MPI 4.1.4's own reduce-scatter reduces to rank 0 first and makes no progress
// between calls; `trireme bench reduce` shows both.
#pragma once

#include <cstdint>
#include <vector>

#include <mpi.h>

#include "base/view.hpp"

#include "device/device.hpp"

#include "comm/control/progress.hpp"

namespace trireme::comm {

class Ring {
 public:
  /// Borrows `comm` and `progress`. `owners`: by rank of the ring, its number in the world.
  /// `chunk_bytes`: size of one message at most.
  Ring(MPI_Comm comm,
       Progress& progress,
       std::vector<int> owners,
       device::Device& device,
       std::size_t chunk_bytes);

  /// Shapes: full = [ranks of the world * shard], fp32. Leaves the sum of this rank's block in
  /// place; the ring's other blocks are undefined afterwards.
  void reduce_scatter(View full, std::int64_t shard);
  /// Fills the ring's blocks from their owners; any dtype.
  void all_gather(View full, std::int64_t shard);

 private:
  /// One walk: where chunk k of the sequence lies.
  struct Walk;
  void run(const Walk& walk);

  MPI_Comm comm_;
  Progress& progress_;
  std::vector<int> owners_;
  int rank_ = 0;
  int size_ = 1;
  std::size_t chunk_bytes_;
  device::Buffer scratch_;              // [window][chunk_bytes]
  std::vector<MPI_Request> sending_;    // [window]
  std::vector<MPI_Request> receiving_;  // [window]
};

}  // namespace trireme::comm
