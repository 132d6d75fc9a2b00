// SPDX-License-Identifier: Apache-2.0
// The one place where the layout of a job's model is decided: parameters, ranks and copies become a
// layout::Plan. Everything that needs the plan of a run asks here, so that all have the same.
#pragma once

#include "device/device.hpp"
#include "layout/plan.hpp"

#include "model/config.hpp"

#include "comm/control/world.hpp"
#include "reduce/layout_options.hpp"

#include "session/job.hpp"

namespace trireme::session {

/// Of a run on `world` with devices like this one. Collective. Throws UserError where the ranks
/// cannot be divided into the copies of parallel.replicate.
layout::Plan plan_of(const Job& job, comm::World& world, const device::Device& device);

/// On `ranks` ranks in `replicas` copies, connected by `wire`. Arithmetic only.
layout::Plan plan_of(const reduce::ParallelConfig& config,
                     const model::GptShape& shape,
                     int ranks,
                     reduce::Wire wire,
                     int replicas);

}  // namespace trireme::session
