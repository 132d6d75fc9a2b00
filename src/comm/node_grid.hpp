// SPDX-License-Identifier: Apache-2.0
// The ranks as a grid: one row per node, one column per position inside a node. Rows share memory,
// columns talk over the network.
//
// 1. Rows are numbered by their first world rank, columns by local rank; ranks may be dealt to
// nodes in any order.
// 2. Every node has the same number of ranks.
#pragma once

#include <vector>

#include "comm/mpi_world.hpp"

namespace trireme::comm {

struct NodeGrid {
  OwnedComm node;                         ///< this rank's row; ordered by world rank
  OwnedComm column;                       ///< this rank's column; its ranks are row numbers
  std::vector<std::vector<int>> members;  ///< [row][column]: world rank
  int row = 0;
  int local_rank = 0;

  [[nodiscard]] int num_rows() const { return static_cast<int>(members.size()); }
  [[nodiscard]] int num_columns() const { return static_cast<int>(members[0].size()); }
};

/// The ranks that can share memory with this one, as MPI sees it. Collective.
OwnedComm split_by_host(const MpiWorld& world);

/// Whether every `node` has the same number of ranks. Collective; the same answer everywhere.
bool nodes_are_equal(MpiWorld& world, const OwnedComm& node);

/// Collective. Requires: nodes_are_equal.
NodeGrid make_grid(MpiWorld& world, OwnedComm node);

}  // namespace trireme::comm
