// SPDX-License-Identifier: Apache-2.0
// Checks that a run has enough memory before it allocates any.
//
// On a CPU the limits are the available memory of the host (including swap), the limits of control
// groups, and `ulimit -v` and `ulimit -d` of the process. On a GPU it is the GPU's free memory.
#pragma once

#include <cstdint>
#include <string>

#include "device/device.hpp"
#include "layout/plan.hpp"

#include "model/shape.hpp"

#include "comm/control/world.hpp"

#include "session/rank_memory.hpp"
#include "session/sections.hpp"

namespace trireme::session {

/// Bytes that this host and this process can still allocate, and the name of the limit.
struct AvailableMemory {
  std::int64_t host_bytes = 0, process_bytes = 0;
  std::string host_limit, process_limit;
};
AvailableMemory available_memory();

/// Why `ranks` ranks of `bytes` each do not fit into `available`; empty: they fit.
std::string memory_problem(const AvailableMemory& available, std::int64_t bytes, int ranks);

/// A sentence with settings that would fit and the memory of a rank with them, or other advice.
std::string what_would_fit(const Sections& config,
                           const model::GptShape& shape,
                           const layout::Plan& plan,
                           const RankKind& kind,
                           const AvailableMemory& available,
                           int ranks);

/// Returns `shape`. Collective. Throws DeviceError if a host or a GPU has too little memory.
model::GptShape with_memory(const Sections& config,
                            model::GptShape shape,
                            const layout::Plan& plan,
                            DType dtype,
                            const device::Device& device,
                            comm::World& world);

}  // namespace trireme::session
