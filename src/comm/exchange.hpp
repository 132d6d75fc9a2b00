// SPDX-License-Identifier: Apache-2.0
// Reduce-scatter in a promised order: every rank receives all peers' copies of its own block and
// adds them by rank, one after another or in pairs. The same bytes cross the wire as in a ring, in
// more messages; the bits depend on nothing but the ranks' numbers.
//
// A group is one chunk of every peer. While one group is added, the next ones are under way.
//
// 1. Peers whose memory is readable here (the same node) are read in place; only the others send.
// 2. Sums are in fp32, and bf16 is rounded once, at the end; those of int64 are exact.
// 3. Scratch is allocated at construction and does not grow with the ranks beyond
// `smallest_chunk_bytes` each; a collective allocates nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <mpi.h>

#include "base/view.hpp"

#include "device/device.hpp"

#include "comm/accumulate.hpp"
#include "comm/progress.hpp"

namespace trireme::comm {

class Exchange {
 public:
  /// Borrows `comm` and `progress`. `chunk_bytes`: size of one message at most.
  Exchange(MPI_Comm comm,
           Progress& progress,
           Summation sum,
           device::Device& device,
           std::size_t chunk_bytes);

  /// Shapes: blocks = one per rank, of equal lengths, fp32, bf16 or int64; readable = one per rank:
  /// its copy of this rank's block where this process can read it, null where it must be sent (the
  /// own entry does not matter). The relation is mutual. Leaves the sum of this rank's block in
  /// place. Requires: readable copies stay as they are until all who read them are done.
  void reduce_scatter(std::span<const View> blocks, std::span<const std::byte* const> readable);

 private:
  static constexpr std::size_t groups = 8;
  static constexpr std::size_t smallest_chunk_bytes = 8192;

  void send_group(std::span<const View> blocks,
                  std::span<const std::byte* const> readable,
                  std::int64_t group);
  void receive_group(const View& own,
                     std::span<const std::byte* const> readable,
                     std::int64_t group);
  void add_group(const View& own, std::span<const std::byte* const> readable, std::int64_t group);
  /// The group's requests, one per peer.
  [[nodiscard]] std::span<MPI_Request> of_group(std::vector<MPI_Request>& requests,
                                                std::int64_t group) const;
  [[nodiscard]] View chunk_of(const View& block, std::int64_t group) const;
  [[nodiscard]] std::byte* landing(std::int64_t group, int peer) const;

  MPI_Comm comm_;
  Progress& progress_;
  Summation sum_;
  int rank_ = 0;
  int size_ = 1;
  std::size_t chunk_bytes_ = 0;
  device::Buffer scratch_;              // [groups][size][chunk_bytes]
  std::vector<MPI_Request> sending_;    // [groups][size]
  std::vector<MPI_Request> receiving_;  // [groups][size]
  std::vector<const std::byte*> sources_;
};

}  // namespace trireme::comm
