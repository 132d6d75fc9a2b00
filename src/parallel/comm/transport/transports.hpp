// SPDX-License-Identifier: Apache-2.0
// The transports of make_communicator, one factory each.
#pragma once

#include <memory>

#include "comm/communicator.hpp"
#include "comm/control/mpi_world.hpp"

namespace trireme::comm {

/// Shared memory between the ranks of `node`, messages between nodes. `transport`: shared_memory,
/// hierarchical, or mpi, with which `node` is this rank alone. Collective.
std::unique_ptr<Communicator> make_node_communicator(Transport transport,
                                                     Reduction reduction,
                                                     MpiWorld& world,
                                                     device::Device& device,
                                                     const Options& options,
                                                     OwnedComm node);

/// NCCL, in builds with CUDA. Collective.
std::unique_ptr<Communicator> make_nccl_communicator(World& world,
                                                     device::Device& device,
                                                     const Options& options);

/// nccl_version() in builds with CUDA.
std::string loaded_nccl_version();

/// `transport` inside each of options.replicas, messages or NCCL across replicas. Collective.
/// Requires: several replicas, of all ranks of the world; equal ones without options.sums_inside.
std::unique_ptr<Communicator> make_replicated_communicator(Transport transport,
                                                           Reduction reduction,
                                                           MpiWorld& world,
                                                           device::Device& device,
                                                           const Options& options);

/// Size of a single message. Between hosts it stays below Open MPI's eager limit for TCP (64 KiB):
/// longer messages wait for a reply that is queued after the data of the other direction. Source:
/// `trireme bench reduce`, ring of 64 MiB on 2 ranks. 2 Gbit/s link (134 ms at wire speed): 141 ms
/// with 60 KiB, 250 ms with 512 KiB messages. One host: 5.1 ms with 512, 5.5 with 60 KiB.
std::size_t message_bytes(const Options& options, bool one_host);

}  // namespace trireme::comm
