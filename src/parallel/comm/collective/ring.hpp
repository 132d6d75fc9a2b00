// SPDX-License-Identifier: Apache-2.0
// Reduce-scatter and all-gather around a ring of non-blocking messages, chunked and pipelined. Open
// MPI 4.1.4's own reduce-scatter reduces to rank 0 first and makes no progress between calls.
//
// A block is the shard that one rank of the ring owns: the shard with this rank's number in the
// world. Both collectives take size-1 steps; in each, every rank sends one block to its right
// neighbour and receives one from its left. The chunks of all steps form one sequence per
// direction, so chunk c of step s+1 is sent as soon as chunk c of step s has arrived, without a
// pause between steps.
//
//   reduce-scatter  step s sends block r-s-1, receives block r-s-2 and adds it in place
//   all-gather      step s sends block r-s, receives block r-s-1 in place
//
// 1. Messages between two ranks are sent and received in the same order, so one tag is enough.
// 2. At most `window` messages per direction are active. Messages of the first block may wait for a
//    neighbour that enters the collective late.
// 3. Scratch is allocated at construction; a collective allocates nothing.
// 4. Terms are added in the order of the ring, starting after the owner: the same bits in every
//    run, but not in rank order. fp32 only, because partial sums are sent.
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
  /// `chunk_bytes`: the largest size of one message.
  Ring(MPI_Comm comm,
       Progress& progress,
       std::vector<int> owners,
       device::Device& device,
       std::size_t chunk_bytes);

  /// Shapes: full = [ranks of the world * shard], fp32. Writes the sum of this rank's block in
  /// place; the ring's other blocks are undefined afterwards.
  void reduce_scatter(View full, std::int64_t shard);
  /// Fills the ring's blocks from their owners; any dtype.
  void all_gather(View full, std::int64_t shard);

 private:
  /// One collective: the address of each chunk of the sequence.
  struct Walk;
  void run(const Walk& walk);

  MPI_Comm comm_;
  Progress& progress_;
  std::vector<int> owners_;
  const int rank_, size_;
  std::size_t chunk_bytes_;
  device::Buffer scratch_;              // [window][chunk_bytes]
  std::vector<MPI_Request> sending_;    // [window]
  std::vector<MPI_Request> receiving_;  // [window]
};

}  // namespace trireme::comm
