// SPDX-License-Identifier: Apache-2.0
// Reduce-scatter and all-gather from non-blocking point-to-point messages, chunked and pipelined.
//
// A block is what one rank ends up owning. Both ring walks take size-1 steps; in each, every rank
// sends one block to its right neighbour and receives one from its left. The chunks of all steps
// form one sequence per direction, so chunk c of step s+1 leaves as soon as chunk c of step s has
// arrived: the pipe never runs dry between steps. The exchange sends each rank its own block
// directly and adds in rank order.
//
//   ring reduce-scatter  step s sends block (r-s-1), receives block (r-s-2) and adds it in place
//   ring all-gather      step s sends block (r-s), receives block (r-s-1) in place
//   exchange             own block = ((g0 + g1) + g2) + …, where g_q is rank q's copy of it
//
// 1. Messages between two ranks are sent and received in the same order, so one tag is enough.
// 2. At most `window` messages per direction (exchange: groups) are under way.
// 3. Scratch is allocated at construction; a collective allocates nothing.
// 4. The ring's sum runs around the ring, starting behind the owner: the same bits run to run, but
// not in rank order. fp32 only; bf16 goes through the exchange, which rounds once.
//
// Source: measured ring of notes "platform-facts" (Open MPI's own reduce-scatter reduces to rank 0
// first and makes no progress between calls).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <mpi.h>

#include "base/view.hpp"

#include "device/device.hpp"

#include "comm/progress.hpp"

namespace trireme::comm {

class Ring {
 public:
  /// Borrows `comm` and `progress`. `chunk_bytes`: size of one message at most.
  Ring(MPI_Comm comm, Progress& progress, device::Device& device, std::size_t chunk_bytes);

  /// Shapes: full = [size * block]. Leaves the sum of this rank's block in place; fp32.
  void reduce_scatter(View full);
  /// Same with the terms added in rank order; fp32 or bf16.
  void reduce_scatter_ordered(View full);
  /// Fills `full` from every rank's own block; any dtype.
  void all_gather(View full);

 private:
  static constexpr std::size_t window = 8;
  static constexpr std::size_t groups = 3;

  /// One ring walk: where chunk k of the sequence lies, and what happens to a received one.
  struct Walk;
  void run(const Walk& walk);
  void send_group(View full, std::int64_t group, std::int64_t chunk_elements);
  void receive_group(std::int64_t block_elements, std::int64_t group, DType dtype);
  bool finished(std::vector<MPI_Request>& requests);
  [[nodiscard]] std::byte* scratch_of(std::size_t slot, int peer) const;

  MPI_Comm comm_;
  Progress& progress_;
  int rank_;
  int size_;
  std::size_t chunk_bytes_;
  device::Buffer ring_scratch_;      // [window][chunk_bytes]
  device::Buffer exchange_scratch_;  // [groups][size][exchange_bytes]
  std::size_t exchange_bytes_;
  std::array<MPI_Request, window> sending_;
  std::array<MPI_Request, window> receiving_;
  std::array<std::vector<MPI_Request>, groups> group_sending_;
  std::array<std::vector<MPI_Request>, groups> group_receiving_;
  std::vector<const std::byte*> sources_;
};

}  // namespace trireme::comm
