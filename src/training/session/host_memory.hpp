// SPDX-License-Identifier: Apache-2.0
// Whether the memory that a run will need is there, before anything of it is allocated.
//
// On a CPU three limits count: what the host has available (swap included), what control groups have
// left, and what `ulimit -v` and `ulimit -d` leave to a process. On a GPU it is the GPU's free
// memory.
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

/// What this host and this process can still take, and the name of the limit that says so.
struct MemoryRoom {
  std::int64_t host_bytes = 0, process_bytes = 0;
  std::string host_limit, process_limit;
};
MemoryRoom memory_room();

/// Why `ranks` ranks of `bytes` each do not fit into `room`; empty: they fit.
std::string memory_problem(const MemoryRoom& room, std::int64_t bytes, int ranks);

/// The first of a few settings that need less memory with which they would fit, and what a rank
/// takes then, as a sentence.
std::string what_would_fit(const Sections& config,
                           const model::GptShape& shape,
                           const layout::Plan& plan,
                           const RankKind& kind,
                           const MemoryRoom& room,
                           int ranks);

/// Returns `shape`. Collective. Throws DeviceError where a host or a GPU has too little memory.
model::GptShape with_memory(const Sections& config,
                            model::GptShape shape,
                            const layout::Plan& plan,
                            DType dtype,
                            const device::Device& device,
                            comm::World& world);

}  // namespace trireme::session
