// SPDX-License-Identifier: Apache-2.0
// The memory of one rank, computed from its deck, plan and device: `trireme plan` prints it, and a
// limit of model.recompute applies to it. The recomputation is decided once, before any allocation,
// from data that is equal on all ranks. All users of a run's plan call plan_of().
#pragma once

#include <cstdint>
#include <string>

#include "base/dtype.hpp"
#include "device/device.hpp"
#include "layout/budget.hpp"
#include "layout/plan.hpp"

#include "model/recompute_choice.hpp"

#include "comm/control/world.hpp"
#include "reduce/compression.hpp"
#include "reduce/layout_options.hpp"

#include "session/job.hpp"

namespace trireme::session {

/// The plan of a run on `world` with devices like this one. Collective. Throws UserError if the
/// ranks cannot be divided into the replicas of parallel.replicate.
layout::Plan plan_of(const Job& job, comm::World& world, const device::Device& device);

/// The plan for the ranks of one replica, connected by `wire`. Arithmetic only.
layout::Plan plan_of(const reduce::ParallelConfig& config,
                     const model::GptShape& shape,
                     const layout::ReplicaRanks& replicas,
                     reduce::Wire wire,
                     int replica);

/// Properties of a rank, in addition to the deck, on which its memory depends.
struct RankKind {
  DType dtype = DType::f32;  ///< of parameters and activations
  device::Kind device = device::Kind::cpu;
};

/// Everything on which a rank's memory depends. The referenced objects must outlive it.
struct RankNeeds {
  const Sections& config;
  const model::GptShape& shape;
  const layout::Plan& plan;
  RankKind kind;
};

/// How `sequences` of a step are divided over the ranks.
batches::Batches batches_of(const Sections& config, std::int64_t sequences, int ranks);
/// Number of micro-steps of the largest step.
std::int64_t most_micro_steps(const Sections& config, int ranks);

layout::BudgetOptions budget_options(const Sections& config,
                                     const layout::Plan& plan,
                                     const RankKind& kind);
/// Memory for the compression of gradients and of local steps.
reduce::CompressionBytes compression_bytes(const Sections& config, const layout::Plan& plan);
/// All fields except peer_bytes; includes the memory for whole matrices.
layout::Budget budget_of(const Sections& config, const layout::Plan& plan, const RankKind& kind);

/// Workspace of a GPU's libraries: for attention of the largest micro-batch (estimated), for matrix
/// products and for the terms of gradients that are sent as bf16. 0 on a CPU.
std::int64_t workspace_bytes(const RankNeeds& rank);

/// Number of recordings (micro_step_graphs.hpp) on a GPU for steps of `micro_steps`: one per
/// position in the step and batch slot. With an even number of micro-steps, only the middle
/// positions use both slots.
std::int64_t num_recordings(std::int64_t micro_steps);

/// Upper bound of the kernels of one micro-step on a GPU: forward, backward and recomputation.
/// Counted on the emulated GPU, with three more per block for operations that cuDNN and cuBLASLt
/// launch as several kernels. Requires: shape.recompute is not a limit.
std::int64_t kernels_of_a_micro_step(const model::GptShape& shape,
                                     DType dtype,
                                     std::int64_t micro_sequences);

/// Memory of the captured graphs: 10 KiB for each kernel of each recording. An estimate, not
/// measured on a GPU: CUDA documents no size, and NVIDIA's CUDASTF uses this number per node in its
/// cache of graphs (github.com/NVIDIA/cccl, pull request 3768). 0 on a CPU, and without graphs.
std::int64_t graph_bytes(const RankNeeds& rank);

/// The parts of the model that are recomputed. If model.recompute is a limit, it applies to all
/// memory above plus activations and scratch; on a GPU without what is in the host's memory.
/// `bytes` of the result is this sum, also if the deck names the parts.
model::RecomputeChoice decide_recompute(const RankNeeds& rank);

/// "2097152 is too little: in fp32 a rank needs at least 2202009 bytes (2.1 MiB), with block".
std::string too_little(const model::GptShape& shape,
                       const model::RecomputeChoice& least,
                       DType dtype);

/// job.shape with the chosen parts in place of a limit. Throws UserError at the key's place if no
/// choice fits into the limit. The same on every rank.
model::GptShape decided_shape(const Job& job, const layout::Plan& plan, const RankKind& kind);

/// Collective. The job with the decision of the run in `world`. Throws as above.
Job decided(Job job, comm::World& world, const device::Device& device, DType dtype);

}  // namespace trireme::session
