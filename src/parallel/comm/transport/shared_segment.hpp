// SPDX-License-Identifier: Apache-2.0
// Memory that all ranks of a node map: one piece per rank, each in its own memory file.
//
// A memory file (memfd) has no name and is in no file system: nothing remains when a rank is
// killed, and a container's small /dev/shm does not limit it. The peers receive it as an open file
// (comm/transport/file_exchange.hpp). Its pages are allocated at construction, so that lack of
// memory is an error at that point and not a SIGBUS in the middle of a step; each rank allocates
// its own pages, near its core. A peer's pages enter this process's page table when they are first
// read. From a peer's bucket a rank reads two shards, its own and the peer's, so the table covers
// about two segments for any number of peers.
//
// 1. Construction is collective over the node, and fails on all ranks if it fails on one.
// 2. New memory is zero and page-aligned. Unmapping is local, and does nothing after
//    device::keep_all_memory().
// 3. A piece is that of the right peer: its file comes with a random number of the sender, which
//    all ranks know from MPI.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include <mpi.h>

#include "comm/control/progress.hpp"
#include "comm/transport/file_exchange.hpp"

namespace trireme::comm {

class SharedSegment {
 public:
  /// Collective over `node`, on all nodes. `progress` waits for the node's other ranks. Throws
  /// CommError naming `what`, the bytes and the reason.
  SharedSegment(MPI_Comm node, Progress& progress, std::size_t bytes, std::string_view what);
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  /// Address, in this process, of the piece of a rank of the node.
  [[nodiscard]] std::byte* piece(int local_rank) const {
    return pieces_[static_cast<std::size_t>(local_rank)];
  }

 private:
  /// Creates and maps this rank's piece; failures go to `mine`.
  OwnedFile take_memory(int rank, NodeReport& mine);
  void map_peer(std::size_t peer, const OwnedFile& file, NodeReport& mine);
  void unmap() noexcept;

  std::size_t bytes_;
  std::vector<std::byte*> pieces_;
};

}  // namespace trireme::comm
