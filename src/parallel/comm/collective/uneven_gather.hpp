// SPDX-License-Identifier: Apache-2.0
// All-gather between hosts that have different numbers of ranks: every owner sends its shard to its
// agent on every other host (comm/collective/hosts.hpp), and the host's other ranks copy it from
// the agent. A host receives each shard once. Hosts with the same number of ranks use rings instead
// (comm/collective/ring.hpp).
//
// 1. Shards are received in place; there is no scratch, and a collective allocates nothing.
// 2. Messages are sorted by chunk, then owner, on both sides, so bounded windows cannot deadlock.
#pragma once

#include <vector>

#include <mpi.h>

#include "base/view.hpp"

#include "comm/collective/hosts.hpp"
#include "comm/control/progress.hpp"

namespace trireme::comm {

class UnevenGather {
 public:
  /// Borrows `comm`, which has the ranks of `hosts`, and `progress`.
  UnevenGather(MPI_Comm comm, Progress& progress, const Hosts& hosts, std::size_t chunk_bytes);

  /// Shapes: full = [ranks * shard], any dtype. Fills the blocks for which this rank is the agent.
  void all_gather(View full);

 private:
  static constexpr std::size_t window = 64;  // active messages, per direction

  MPI_Comm comm_;
  Progress& progress_;
  std::size_t chunk_bytes_;
  int rank_ = 0;
  int size_ = 1;
  std::vector<int> owners_;  // owners of the shards that this rank receives
  std::vector<int> agents_;  // receivers of this rank's shard
  std::vector<MPI_Request> sending_, receiving_;
};

}  // namespace trireme::comm
