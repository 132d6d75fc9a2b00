// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/node_grid.hpp"

#include <array>
#include <utility>
#include <vector>

#include "comm/control/mpi_comm.hpp"

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

int largest_node(MpiWorld& world, const OwnedComm& node) {
  std::int64_t most = node.size();
  world.max({&most, 1});
  return static_cast<int>(most);
}

NodeGrid make_grid(MpiWorld& world, OwnedComm node) {
  // A host is identified by its first world rank.
  const std::array<double, 1> mine{static_cast<double>(first_rank(world, node))};
  std::vector<int> host_of;
  for (const double first : world.gather_all(mine)) host_of.push_back(static_cast<int>(first));
  NodeGrid grid{std::move(node), {}, Hosts(host_of)};
  grid.row = grid.hosts.host_of(world.rank());
  grid.local_rank = grid.node.rank();
  TRIREME_EXPECT(grid.local_rank == grid.hosts.local_of(world.rank()),
                 "rank {} is number {} of its host, not {}", world.rank(), grid.local_rank,
                 grid.hosts.local_of(world.rank()));
  if (grid.hosts.equal()) {
    MPI_Comm column = MPI_COMM_NULL;
    TRIREME_MPI(MPI_Comm_split(world.comm(), grid.local_rank, grid.row, &column));
    grid.column = OwnedComm(column);
  }
  return grid;
}

}  // namespace trireme::comm
