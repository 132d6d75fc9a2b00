// SPDX-License-Identifier: Apache-2.0
// What one rank holds, known from its deck, its plan and its device alone: what `trireme plan`
// prints, and what a budget of model.recompute is about. And the recomputation that such a budget
// comes to: arithmetic on what all ranks know alike, done once, before the run allocates anything.
#pragma once

#include <cstdint>
#include <string>

#include "base/dtype.hpp"

#include "device/device.hpp"
#include "layout/budget.hpp"
#include "layout/plan.hpp"

#include "comm/control/world.hpp"

#include "model/recompute_choice.hpp"

#include "session/job.hpp"

namespace trireme::session {

/// What it depends on beside the deck.
struct RankKind {
  DType dtype = DType::f32;  ///< of parameters and activations
  device::Kind device = device::Kind::cpu;
};

/// Micro-steps of the largest step.
std::int64_t most_micro_steps(const BatchConfig& batch, int ranks);

layout::BudgetOptions budget_options(const Sections& config,
                                     const layout::Plan& plan,
                                     const RankKind& kind);
/// All but peer_bytes, those of whole matrices included.
layout::Budget budget_of(const Sections& config, const layout::Plan& plan, const RankKind& kind);

/// Of a GPU's libraries: the largest micro-batch's attention, estimated, and matrix products. 0 on
/// a CPU.
std::int64_t workspace_bytes(const Sections& config,
                             const model::GptShape& shape,
                             const RankKind& kind);

/// The words of model.recompute. A limit counts all of the above, with activations and scratch; on
/// a GPU without the snapshot, which lies in the host's memory. `bytes` of the result counts so,
/// with words in the deck too, which always fit.
model::RecomputeChoice decide_recompute(const Sections& config,
                                        const model::GptShape& shape,
                                        const layout::Plan& plan,
                                        const RankKind& kind);

/// "2097152 are too few: in fp32 a rank takes 2202009 bytes (2.1 MiB) at least, with block".
std::string too_little(const model::GptShape& shape,
                       const model::RecomputeChoice& least,
                       DType dtype);

/// job.shape with words in place of a limit. Throws UserError at the key's place where no words
/// come to so few bytes. The same on every rank.
model::GptShape decided_shape(const Job& job, const layout::Plan& plan, const RankKind& kind);

/// As the run in `world` would decide, for a part of it that is measured or proven by itself.
/// Collective.
model::RecomputeChoice decide_recompute(const Job& job,
                                        comm::World& world,
                                        const device::Device& device,
                                        DType dtype);
/// The job with these words. Collective. Throws as above.
Job decided(Job job, comm::World& world, const device::Device& device, DType dtype);

}  // namespace trireme::session
