// SPDX-License-Identifier: Apache-2.0
// Memory that all ranks of a node map: one piece per rank, each in its own memory file.
//
// A memory file (memfd) has no name and no place in a file system: nothing is left behind when a
// rank is killed, and a container's small /dev/shm does not limit it. The peers open it through
// /proc/PID/fd. Its pages are taken at construction, so that a full node is an error here and not
// a SIGBUS in the middle of a step; each rank takes its own, close to its core.
//
// 1. Construction is collective over the node, and fails on all ranks when it fails on one.
// 2. Fresh memory is zero and page-aligned; unmapping is local.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include <mpi.h>

#include "comm/progress.hpp"

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
  void unmap() noexcept;

  std::size_t bytes_;
  std::vector<std::byte*> pieces_;
};

}  // namespace trireme::comm
