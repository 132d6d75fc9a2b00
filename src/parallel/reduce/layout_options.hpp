// SPDX-License-Identifier: Apache-2.0
// The layout that a deck specifies for a number of ranks, in particular the size of buckets with
// `bucket_elements: auto` (docs/design/foundation.md, "Layout"). It never exceeds the size of the
// model. The size of a message depends on the transport:
//
//   one host, shared memory   512 KiB     reason: comm/transport/transports.hpp
//   several hosts, MPI         60 KiB
//   GPUs, NCCL                  4 MB      1 million elements of fp32. Source: Megatron-LM,
//                                         distributed_data_parallel_config.py: max(40M, 1M * ranks)
//
// Ranks are those that share a bucket: with parallel.replicate the ranks of one replica, unless
// parallel.reduction guarantees an order.
//
// The choice depends only on numbers that are equal on all ranks. Bucket boundaries change no
// result: checkpoints hold parameters, not buckets, and may be read with any other choice.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/device.hpp"
#include "layout/plan.hpp"

#include "comm/control/world.hpp"
#include "reduce/config.hpp"

namespace trireme::reduce {

/// The network over which buckets are sent.
enum class Wire : std::uint8_t { inside_a_host, between_hosts, gpus };

/// The same on every rank.
Wire wire_of(const comm::World& world, const device::Device& device);

/// Number of elements at which a bucket closes: that of the deck, or the value of auto for
/// `sharers` ranks that share a bucket.
std::int64_t bucket_elements(const ParallelConfig& config,
                             const std::vector<layout::Parameter>& parameters,
                             int sharers,
                             Wire wire);

/// The error in parallel.replicate, if any, on `ranks` consecutive ranks of `hosts` hosts. Only with
/// local steps replicas may have different numbers of ranks, or one. Empty: no error.
std::string replicas_problem(const ParallelConfig& config, int ranks, int hosts, bool local_steps);
/// Throws UserError if replicas_problem() is not empty.
layout::ReplicaRanks replicas(const ParallelConfig& config, int ranks, int hosts, bool local_steps);
/// The same for a run. Collective. With replicate: node, also throws UserError if the ranks of a
/// host are not consecutive.
layout::ReplicaRanks replicas(const ParallelConfig& config, comm::World& world, bool local_steps);

/// For the ranks of one replica.
layout::Options layout_options(const ParallelConfig& config,
                               const std::vector<layout::Parameter>& parameters,
                               const layout::ReplicaRanks& replicas,
                               Wire wire,
                               int replica = 0);

/// How the plan's buckets were chosen, e.g. "40 M elements: auto" or "boundaries of the deck".
std::string bucket_text(const ParallelConfig& config, const layout::Plan& plan);

}  // namespace trireme::reduce
