// SPDX-License-Identifier: Apache-2.0
#include "comm/node_grid.hpp"

#include <array>
#include <map>
#include <utility>
#include <vector>

#include "comm/mpi_check.hpp"

namespace trireme::comm {

namespace {

/// The world rank of `node`'s rank 0.
int first_rank(const MpiWorld& world, const OwnedComm& node) {
  MPI_Group all = MPI_GROUP_NULL, here = MPI_GROUP_NULL;
  TRIREME_MPI(MPI_Comm_group(world.comm(), &all));
  TRIREME_MPI(MPI_Comm_group(node.get(), &here));
  const int zero = 0;
  int first = -1;
  TRIREME_MPI(MPI_Group_translate_ranks(here, 1, &zero, all, &first));
  TRIREME_MPI(MPI_Group_free(&all));
  TRIREME_MPI(MPI_Group_free(&here));
  return first;
}

}  // namespace

OwnedComm split_by_host(const MpiWorld& world) {
  MPI_Comm node = MPI_COMM_NULL;
  TRIREME_MPI(MPI_Comm_split_type(world.comm(), MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
  return OwnedComm(node);
}

bool nodes_are_equal(MpiWorld& world, const OwnedComm& node) {
  std::array<std::int64_t, 2> extremes{node.size(), -node.size()};
  world.max(extremes);
  return extremes[0] == -extremes[1];
}

NodeGrid make_grid(MpiWorld& world, OwnedComm node) {
  NodeGrid grid;
  grid.node = std::move(node);
  grid.local_rank = grid.node.rank();
  // A node is known by its first world rank.
  const std::array<double, 2> mine{static_cast<double>(grid.node.rank()),
                                   static_cast<double>(first_rank(world, grid.node))};
  const auto seats = world.gather_all(mine);
  MPI_Comm column = MPI_COMM_NULL;
  TRIREME_MPI(MPI_Comm_split(world.comm(), grid.local_rank, static_cast<int>(mine[1]), &column));
  grid.column = OwnedComm(column);
  grid.row = grid.column.rank();

  // Columns are ordered by the nodes' first ranks, so rows are.
  std::map<int, std::vector<int>> rows;
  for (int rank = 0; rank < world.size(); ++rank) {
    const auto seat = 2 * static_cast<std::size_t>(rank);
    auto& row = rows[static_cast<int>(seats[seat + 1])];
    row.resize(static_cast<std::size_t>(grid.node.size()), -1);
    row[static_cast<std::size_t>(seats[seat])] = rank;
  }
  for (auto& [first, row] : rows) grid.members.push_back(std::move(row));
  return grid;
}

}  // namespace trireme::comm
