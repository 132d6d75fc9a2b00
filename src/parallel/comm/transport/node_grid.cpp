// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/node_grid.hpp"

#include <utility>
#include <vector>

#include "comm/control/mpi_comm.hpp"

namespace trireme::comm {

NodeGrid make_grid(MpiWorld& world, OwnedComm node) {
  double first = world.rank();                                   // of the host, which it identifies
  TRIREME_MPI(MPI_Bcast(&first, 1, MPI_DOUBLE, 0, node.get()));  // the split was just now
  const auto firsts = world.gather_all({&first, 1});
  const std::vector<int> host_of(firsts.begin(), firsts.end());
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
