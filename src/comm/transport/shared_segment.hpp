// SPDX-License-Identifier: Apache-2.0
// Memory that all ranks of a node map: one piece per rank, each in its own memory file.
//
// A memory file (memfd) has no name and no place in a file system: nothing is left when a
// rank is killed, and a container's small /dev/shm does not limit it. The peers get it as an open
// file (comm/transport/file_exchange.hpp). Its pages are taken at construction, so that a full node
// is an error here and not a SIGBUS in the middle of a step; each rank takes its own, close to its
// core. A peer's pages enter this process's page table when they are read: a rank reads its own
// shard of the peer's bucket and the peer's, so the table covers about two segments, however many
// peers.
//
// 1. Construction is collective over the node, and fails on all ranks when it fails on one.
// 2. Fresh memory is zero and page-aligned; unmapping is local, and is left out after
//    device::keep_all_memory().
// 3. No rank takes memory for a peer's that is not: every piece ends with a random number of its
//    owner's, beyond the bytes that were asked for, and each rank reads it in every peer's piece
//    and compares it with the one that the peer sent over MPI.
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
  /// Collective over `node`, of all nodes alike. `progress`: how to wait for the node's other ranks
  /// meanwhile. Throws CommError naming `what`, the bytes and the reason.
  SharedSegment(MPI_Comm node, Progress& progress, std::size_t bytes, std::string_view what);
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  /// Where the piece of a rank of the node lies in this process.
  [[nodiscard]] std::byte* piece(int local_rank) const {
    return pieces_[static_cast<std::size_t>(local_rank)];
  }

 private:
  /// Makes and maps this rank's piece; failures go to `mine`.
  OwnedFile take_memory(int rank, NodeReport& mine);
  /// Maps a peer's piece and checks that it is that peer's.
  void map_peer(std::size_t peer, const OwnedFile& file, const Nonce& nonce, NodeReport& mine);
  void unmap() noexcept;

  std::size_t bytes_;
  std::size_t mapped_bytes_;
  std::vector<std::byte*> pieces_;
};

}  // namespace trireme::comm
