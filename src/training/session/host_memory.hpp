// SPDX-License-Identifier: Apache-2.0
// Checks that a run has enough memory before it allocates any, and names other limits of a process.
//
// The limits of memory are the available memory of the host (including swap), the limits of control
// groups, and `ulimit -v` and `ulimit -d` of the process. The ranks of a host count together. A GPU
// has its own memory; of the host it takes copies of the state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/device.hpp"
#include "layout/plan.hpp"

#include "model/shape.hpp"

#include "comm/control/world.hpp"

#include "session/job.hpp"
#include "session/rank_memory.hpp"

namespace trireme::session {

/// Bytes that this host and this process can still allocate, and the name of the limit.
struct AvailableMemory {
  std::int64_t host_bytes = 0, process_bytes = 0;
  std::string host_limit, process_limit;
};
AvailableMemory available_memory();

/// The name of the limit that no one has set for this job.
inline constexpr const char* memory_of_the_host = "the memory of the host";
/// Of a process, in addition to its plan: libraries, MPI, threads, the record.
inline constexpr std::int64_t process_bytes = std::int64_t{64} << 20;

/// Why `ranks` processes with a plan of `bytes` each do not fit into `available`; empty: they fit.
std::string memory_problem(const AvailableMemory& available, std::int64_t bytes, int ranks);

/// A sentence with settings that would fit and the memory of a rank with them, or other advice.
std::string what_would_fit(const RankNeeds& rank, const AvailableMemory& available, int ranks);

struct LimitProblem {
  std::string text, remedy;
};
/// What may fail on `host` with these limits of a process (`ulimit -n` and `-l`), one of whose ranks
/// talks to `peers` ranks of other hosts. `pins`: its network or GPU needs locked memory.
std::vector<LimitProblem> limit_problems(const std::string& host,
                                         std::int64_t open_files,
                                         std::int64_t locked_bytes,
                                         int peers,
                                         bool pins);
/// For a rank of this process; it pins memory where the host has InfiniBand.
std::vector<LimitProblem> limit_problems_here(const std::string& host, int peers);

/// Returns `shape`. Collective. Throws DeviceError if a host or a GPU has too little memory.
model::GptShape with_memory(const Sections& config,
                            model::GptShape shape,
                            const layout::Plan& plan,
                            DType dtype,
                            const device::Device& device,
                            comm::World& world);

}  // namespace trireme::session
