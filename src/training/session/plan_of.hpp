// SPDX-License-Identifier: Apache-2.0
// Computes the layout of a job's model: parameters, ranks and replicas give a layout::Plan.
// Everything that needs the plan of a run calls these functions, so that all have the same plan.
#pragma once

#include "device/device.hpp"
#include "layout/plan.hpp"

#include "model/config.hpp"

#include "comm/control/world.hpp"
#include "reduce/layout_options.hpp"

#include "session/job.hpp"

namespace trireme::session {

/// The plan of a run on `world` with devices like this one. Collective. Throws UserError if the
/// ranks cannot be divided into the replicas of parallel.replicate.
layout::Plan plan_of(const Job& job, comm::World& world, const device::Device& device);

/// The plan for `ranks` ranks in `replicas` replicas, connected by `wire`. Arithmetic only.
layout::Plan plan_of(const reduce::ParallelConfig& config,
                     const model::GptShape& shape,
                     int ranks,
                     reduce::Wire wire,
                     int replicas);

}  // namespace trireme::session
