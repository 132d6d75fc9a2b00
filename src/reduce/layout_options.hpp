// SPDX-License-Identifier: Apache-2.0
// The layout that a deck asks for on a number of ranks: how large a bucket is, above all.
//
// `bucket_elements: auto` takes the larger of 40 million elements and what keeps a rank's shard of
// a full bucket from being less than one message, since each shard pays one latency per rank or
// hop; and never more than the model has. The message is the transport's own:
//
//   one host, shared memory   512 KiB     reason: comm/transport/transports.hpp
//   several hosts, MPI         60 KiB
//   GPUs, NCCL                  4 MB      1 million elements of fp32. Source: Megatron-LM,
//                                         distributed_data_parallel_config.py: max(40M, 1M * ranks)
//
// Where gradients are sharded three buckets are held beside the sums, so there a 16th of the model
// takes the place of 40 million where it is less. With shard: parameters a bucket holds at least a
// layer (that of an embedding apart) and ends with one, so that few buckets are whole at a time.
//
// So 40 million hold up to 305 ranks of one host, 2604 on several hosts and 40 GPUs. The choice is
// arithmetic on numbers that are equal on all ranks. Where a bucket ends changes no number:
// checkpoints hold parameters, not buckets, and may be read with any other choice.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/device.hpp"
#include "layout/plan.hpp"

#include "comm/control/world.hpp"

#include "reduce/config.hpp"

namespace trireme::reduce {

/// What buckets travel over.
enum class Wire : std::uint8_t { inside_a_host, between_hosts, gpus };

/// The same on every rank.
Wire wire_of(const comm::World& world, const device::Device& device);

/// Elements that close a bucket: the deck's, or those that auto stands for.
std::int64_t bucket_elements(const ParallelConfig& config,
                             const std::vector<layout::Parameter>& parameters,
                             int ranks,
                             Wire wire);

/// What is wrong with parallel.replicate on `ranks` ranks, equally many of which follow one another
/// on each of `hosts` hosts: copies that have no equal groups of ranks, or leave nothing in shards.
/// Empty: nothing.
std::string replicas_problem(const ParallelConfig& config, int ranks, int hosts);
/// The copies that it stands for there. Throws UserError where there is a problem.
int replicas(const ParallelConfig& config, int ranks, int hosts);
/// The same of a run. Collective. Throws UserError as well where hosts have not equally many, or
/// not consecutive ranks, and a copy is to be on each.
int replicas(const ParallelConfig& config, comm::World& world);

/// `ranks`: of all copies.
layout::Options layout_options(const ParallelConfig& config,
                               const std::vector<layout::Parameter>& parameters,
                               int ranks,
                               Wire wire,
                               int replicas = 1);

/// "40 M elements: auto", "chosen by hand": how the plan's buckets came about.
std::string bucket_text(const ParallelConfig& config, const layout::Plan& plan);

}  // namespace trireme::reduce
