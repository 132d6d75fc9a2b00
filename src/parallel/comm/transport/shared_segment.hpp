// SPDX-License-Identifier: Apache-2.0
// Memory that all ranks of a node map: one memory file with a piece per rank.
//
// A memory file (memfd) has no name and is in no file system: nothing remains when a rank is
// killed, and a container's small /dev/shm does not limit it. Rank 0 of the node makes it and sends
// it to the others as an open file, in SCM_RIGHTS messages to Unix sockets with abstract names
// (unix(7)). So they receive it even if they are in other namespaces of processes, users and
// mounts. Process ids are not used: with one container per rank they name other processes. Ranks in
// different network namespaces cannot reach each other's sockets, and get an error.
//
// All pages are allocated at construction, so that lack of memory is an error at that point and not
// a SIGBUS in the middle of a step; each rank allocates those of its own piece, near its core. A
// peer's pages enter this process's page table when they are first read. From a peer's bucket a
// rank reads two shards, its own and the peer's, so the table covers about two segments for any
// number of peers.
//
// 1. Construction is collective over the world, and fails on all ranks if it fails on one.
// 2. New memory is zero, and pieces are page-aligned. Unmapping is local, and does nothing after
//    device::keep_all_memory().
// 3. No rank waits for a message: all ranks know that all messages were sent before one is
//    received. Messages without a random number, which the ranks know from MPI, are dropped.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include <mpi.h>

#include "comm/control/mpi_world.hpp"

namespace trireme::comm {

class SharedSegment {
 public:
  /// Collective over `world`; `node` has those of its ranks that share memory with this one. Throws
  /// CommError naming `what`, the bytes and the reason, or FailedElsewhere.
  SharedSegment(MPI_Comm node, MpiWorld& world, std::size_t bytes, std::string_view what);

  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  /// Address, in this process, of the piece of a rank of the node.
  [[nodiscard]] std::byte* piece(int local_rank) const {
    return all_.get() + static_cast<std::size_t>(local_rank) * stride_;
  }

 private:
  struct Unmap {
    std::size_t bytes;
    void operator()(std::byte* at) const noexcept;
  };

  std::size_t bytes_;
  std::size_t stride_;  // from one piece to the next
  std::unique_ptr<std::byte, Unmap> all_;
};

}  // namespace trireme::comm
