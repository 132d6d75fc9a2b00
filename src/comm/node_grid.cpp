// SPDX-License-Identifier: Apache-2.0
#include "comm/node_grid.hpp"

#include <array>
#include <utility>

#include "comm/mpi_check.hpp"

namespace trireme::comm {

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

NodeGrid make_grid(const MpiWorld& world, OwnedComm node) {
  NodeGrid grid;
  grid.node = std::move(node);
  grid.local_rank = grid.node.rank();
  int leader = world.rank();
  TRIREME_MPI(MPI_Bcast(&leader, 1, MPI_INT, 0, grid.node.get()));
  MPI_Comm column = MPI_COMM_NULL;
  TRIREME_MPI(MPI_Comm_split(world.comm(), grid.local_rank, leader, &column));
  grid.column = OwnedComm(column);
  grid.row = grid.column.rank();

  const std::array<int, 2> mine{grid.row, grid.local_rank};
  std::vector<std::array<int, 2>> seats(static_cast<std::size_t>(world.size()));
  TRIREME_MPI(MPI_Allgather(mine.data(), 2, MPI_INT, seats.data(), 2, MPI_INT, world.comm()));
  grid.members.assign(static_cast<std::size_t>(grid.column.size()),
                      std::vector<int>(static_cast<std::size_t>(grid.node.size()), -1));
  for (int rank = 0; rank < world.size(); ++rank) {
    const auto [row, local] = seats[static_cast<std::size_t>(rank)];
    grid.members[static_cast<std::size_t>(row)][static_cast<std::size_t>(local)] = rank;
  }
  return grid;
}

}  // namespace trireme::comm
