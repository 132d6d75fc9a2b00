// SPDX-License-Identifier: Apache-2.0
// The communicators of a grid of ranks: a row per host, whose ranks share memory, and, if every
// host has the same number of ranks, a column per local rank, whose ranks communicate over the
// network in a ring. Ranks may be distributed to hosts in any order.
#pragma once

#include "comm/collective/hosts.hpp"
#include "comm/control/mpi_world.hpp"

namespace trireme::comm {

struct NodeGrid {
  OwnedComm node;    ///< the ranks of this host, ascending
  OwnedComm column;  ///< by host number; null if hosts have different numbers of ranks
  Hosts hosts;
  int row = 0;  ///< this rank's host
  int local_rank = 0;

  [[nodiscard]] int num_rows() const { return hosts.count(); }
  [[nodiscard]] int num_local() const { return static_cast<int>(members().size()); }
  /// The ranks of this host, ascending.
  [[nodiscard]] const std::vector<int>& members() const { return hosts.members(row); }
  [[nodiscard]] bool has_columns() const { return column.get() != MPI_COMM_NULL; }
};

/// Collective.
NodeGrid make_grid(MpiWorld& world, OwnedComm node);

}  // namespace trireme::comm
