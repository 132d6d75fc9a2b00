// SPDX-License-Identifier: Apache-2.0
#include "session/plan_of.hpp"

#include "model/layers.hpp"

namespace trireme::session {

layout::Plan plan_of(const Job& job, comm::World& world, const device::Device& device) {
  return plan_of(job.parallel, job.shape, world.size(), reduce::wire_of(world, device),
                 reduce::replicas(job.parallel, world));
}

layout::Plan plan_of(const reduce::ParallelConfig& config,
                     const model::GptShape& shape,
                     int ranks,
                     reduce::Wire wire,
                     int replicas) {
  const auto parameters = model::parameter_table(shape);
  return {parameters, reduce::layout_options(config, parameters, ranks, wire, replicas)};
}

}  // namespace trireme::session
