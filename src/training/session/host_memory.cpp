// SPDX-License-Identifier: Apache-2.0
#include "session/host_memory.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>

#include <fmt/format.h>
#include <sys/resource.h>

#include "base/control_groups.hpp"
#include "base/error.hpp"
#include "base/kernel_text.hpp"
#include "base/text.hpp"

#include "comm/control/together.hpp"

namespace trireme::session {
namespace {

constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();

void lower(std::int64_t& bytes, std::string& name, std::int64_t limit, const char* of) {
  if (limit >= bytes)
    return;
  bytes = limit;
  name = of;
}

void lower_to_ulimit(AvailableMemory& available, int which, std::int64_t used, const char* of) {
  if (const auto limit = ulimit_of(which))
    lower(available.process_bytes, available.process_limit,
          std::max<std::int64_t>(0, *limit - used), of);
}

AvailableMemory memory_of_gpu(const device::MemoryInfo& memory) {
  return {no_limit, static_cast<std::int64_t>(memory.free_bytes), {}, "the GPU"};
}

}  // namespace

AvailableMemory available_memory() {
  AvailableMemory available{no_limit, no_limit, {}, {}};
  const std::string memory = trireme::text_of("/proc/meminfo"),
                    process = trireme::text_of("/proc/self/status");
  if (const std::int64_t bytes = bytes_of(memory, "MemAvailable"); bytes > 0)
    lower(available.host_bytes, available.host_limit, bytes + bytes_of(memory, "SwapFree"),
          memory_of_the_host);
  if (const GroupLimits groups = limits_of_groups(); groups.memory_free_bytes != unlimited)
    lower(available.host_bytes, available.host_limit, groups.memory_free_bytes,
          "the limit of the control group");
  lower_to_ulimit(available, RLIMIT_AS, bytes_of(process, "VmSize"), "ulimit -v");
  lower_to_ulimit(available, RLIMIT_DATA, bytes_of(process, "VmData"), "ulimit -d");
  return available;
}

std::string memory_problem(const AvailableMemory& available, std::int64_t bytes, int ranks) {
  bytes += process_bytes;
  if (bytes > available.process_bytes)
    return fmt::format("a rank needs {}, but {} allows it {}", bytes_text(bytes),
                       available.process_limit, bytes_text(available.process_bytes));
  if (bytes > available.host_bytes / ranks)
    return fmt::format("{} rank{} need{} {}{}, but {} allows {}", ranks, ranks == 1 ? "" : "s",
                       ranks == 1 ? "s" : "", bytes_text(bytes * ranks),
                       ranks == 1 ? "" : fmt::format(" ({} each)", bytes_text(bytes)),
                       available.host_limit, bytes_text(available.host_bytes));
  return "";
}

std::string what_would_fit(const RankNeeds& rank, const AvailableMemory& available, int ranks) {
  Sections less = rank.config;
  less.checkpoint.memory_every_steps = 0;
  model::GptShape smaller = rank.shape;
  smaller.recompute = model::Recompute::block;
  std::string settings = "model.recompute: block";
  if (rank.config.checkpoint.memory_every_steps > 0)
    settings += " and checkpoint.memory_every_steps: 0";
  const RankNeeds needs{less, smaller, rank.plan, rank.kind};
  std::int64_t bytes = decide_recompute(needs).bytes;
  if (!memory_problem(available, bytes, ranks).empty() && less.batch.micro_sequences > 1) {
    less.batch.micro_sequences = 1;
    settings += " and batch.micro_sequences: 1";
    bytes = decide_recompute(needs).bytes;
  }
  if (memory_problem(available, bytes, ranks).empty())
    return fmt::format("With {} a rank needs {}, which fits", settings,
                       bytes_text(bytes + process_bytes));
  return fmt::format(
      "With {} a rank still needs {}. Use fewer ranks on each host, parallel.shard on more hosts, "
      "or a smaller model; `trireme plan` shows what takes the memory",
      settings, bytes_text(bytes + process_bytes));
}

std::vector<LimitProblem> limit_problems(const std::string& host,
                                         std::int64_t open_files,
                                         std::int64_t locked_bytes,
                                         int peers,
                                         bool pins) {
  constexpr std::int64_t own_files = 256, least_locked = std::int64_t{64} << 20;
  std::vector<LimitProblem> found;
  if (const std::int64_t needed = own_files + peers; open_files != unlimited && open_files < needed)
    found.push_back(
        {fmt::format("ulimit -n allows a process to open {} files on {}, and a rank may "
                     "need {}: its own and a connection to each of {} ranks elsewhere",
                     open_files, host, needed, peers),
         fmt::format("raise the limit (ulimit -n {})", 4 * needed)});
  if (pins && locked_bytes != unlimited && locked_bytes < least_locked)
    found.push_back(
        {fmt::format("ulimit -l limits locked memory to {} on {}", bytes_text(locked_bytes), host),
         "with InfiniBand or GPUs, set ulimit -l unlimited; otherwise ignore this"});
  return found;
}

std::vector<LimitProblem> limit_problems_here(const std::string& host, int peers) {
  std::error_code ignored;
  const bool pins =
      peers > 0 && !std::filesystem::is_empty("/sys/class/infiniband", ignored) && !ignored;
  return limit_problems(host, ulimit_of(RLIMIT_NOFILE).value_or(unlimited),
                        ulimit_of(RLIMIT_MEMLOCK).value_or(unlimited), peers, pins);
}

model::GptShape with_memory(const Sections& config,
                            model::GptShape shape,
                            const layout::Plan& plan,
                            DType dtype,
                            const device::Device& device,
                            comm::World& world) {
  const RankNeeds rank{config, shape, plan, {dtype, device.kind()}};
  const bool on_cpu = device.kind() == device::Kind::cpu;
  const int ranks = on_cpu ? world.local_size() : 1;  // each rank has its own GPU
  comm::together(world, [&] {
    const auto refuse = [&](const std::string& problem) {
      throw DeviceError("memory", "start the run on " + world.host(), problem);
    };
    const AvailableMemory available = on_cpu ? available_memory() : memory_of_gpu(device.memory());
    const layout::Budget budget = budget_of(config, plan, rank.kind);
    // After a loss the copies in memory are there already.
    const std::int64_t there = world.lost.empty() ? 0 : budget.copies_bytes;
    const std::int64_t bytes = decide_recompute(rank).bytes - (on_cpu ? there : 0);
    if (const std::string problem = memory_problem(available, bytes, ranks); !problem.empty())
      refuse(problem + ". " + what_would_fit(rank, available, ranks));
    if (on_cpu)
      return;
    if (const std::string problem =
            memory_problem(available_memory(), budget.host_bytes() - there, world.local_size());
        !problem.empty())
      refuse(problem +
             ". A rank holds copies of its state there for regular checkpoints and for "
             "checkpoint.memory_every_steps");
  });
  return shape;
}

}  // namespace trireme::session
