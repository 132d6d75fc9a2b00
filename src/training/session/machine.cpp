// SPDX-License-Identifier: Apache-2.0
#include "session/machine.hpp"

#include <algorithm>

#include "base/control_groups.hpp"

#include "ops/matmul.hpp"

#include "comm/control/placement.hpp"
#include "comm/control/together.hpp"

namespace trireme::session {

int share_of_cpus(int usable, bool bound, int ranks, double quota) {
  const int share = bound ? usable : usable / ranks;
  return std::max(1, quota > 0 ? std::min(share, static_cast<int>(quota / ranks)) : share);
}

int choose_threads(const Or<std::int64_t>& asked, const comm::World& world, std::string* note) {
  const comm::RankPlace here = comm::place_here(world.host(), 1);
  const int usable = static_cast<int>(here.cpus.size()), ranks = world.local_size();
  const double quota = limits_of_groups().cpus;
  const int fitting = share_of_cpus(usable, here.bound(), ranks, quota);
  const int threads = asked.given() ? static_cast<int>(*asked.value) : fitting;
  const bool limited = asked.given() ? quota > 0 && threads > std::max(1.0, quota / ranks)
                                     : threads < share_of_cpus(usable, here.bound(), ranks, 0);
  if (note != nullptr && limited)
    *note = fmt::format(
        "run.threads{} is {}: the control group limits the {} of {} to {:.3g} of {} CPUs{}",
        asked.given() ? "" : ": auto", threads,
        ranks == 1 ? "rank" : fmt::format("{} ranks", ranks), world.host(), quota, here.host_cpus,
        asked.given() ? ", so that threads wait for each other. Set run.threads: auto" : "");
  return threads;
}

namespace {

/// Whether `mine` is true on every rank. If it is true on some ranks only, `notes` receives `lack`
/// and the other ranks.
bool all_have(comm::World& world, bool mine, const char* lack, std::vector<std::string>* notes) {
  std::int64_t having = mine ? 1 : 0;
  world.sum({&having, 1});
  if (having == world.size() || having == 0 || notes == nullptr)
    return having == world.size();
  std::vector<int> without;
  std::string hosts;
  const auto hosts_without = world.gather_all(mine ? "" : world.host());
  for (std::size_t rank = 0; rank < hosts_without.size(); ++rank)
    if (!hosts_without[rank].empty()) {
      without.push_back(static_cast<int>(rank));
      if (hosts.find(hosts_without[rank]) == std::string::npos)
        hosts += (hosts.empty() ? "" : ", ") + hosts_without[rank];
    }
  notes->push_back(fmt::format("{} rank{} {} ({})", lack, without.size() == 1 ? "" : "s",
                               comm::ranges_text(without), hosts));
  return false;
}

int index_of_gpu(const device::CudaCensus& gpus, const comm::World& world) {
  if (gpus.count == 0)
    throw DeviceError("CUDA", "find a GPU on " + world.host(), gpus.why_none);
  // A launcher that assigns a GPU to each rank makes it the only visible one.
  if (gpus.count == 1)
    return 0;
  if (world.local_rank_at_start >= gpus.count)
    throw DeviceError("CUDA", "give each rank a GPU of " + world.host(),
                      fmt::format("{} ranks and {} GPUs", world.local_size(), gpus.count));
  return world.local_rank_at_start;
}

}  // namespace

std::string isolation_note(comm::World& world, int visible, const std::string& gpu) {
  const auto hosts_without = world.gather_all(visible == 1 ? world.host() + '\n' + gpu : "");
  for (const std::string& mine : hosts_without) {
    const std::string host = mine.substr(0, mine.find('\n') + 1);
    const bool has_other = std::ranges::any_of(hosts_without, [&](const std::string& one) {
      return !host.empty() && one.starts_with(host) && one != mine;
    });
    if (has_other)
      return fmt::format(
          "each rank on {} sees only one GPU, a different one, so NCCL may not use NVLink. Let "
          "every rank see all GPUs of its host (Slurm: --gpus-per-node instead of --gpus-per-task)",
          host.substr(0, host.size() - 1));
  }
  return "";
}

device::Kind choose_kind(DeviceChoice choice, const device::CudaCensus& gpus) {
  const bool gpu =
      choice == DeviceChoice::cuda || (choice == DeviceChoice::automatic && gpus.count > 0);
  return gpu ? device::Kind::cuda : device::Kind::cpu;
}

void expect_cpus(comm::World& world,
                 const std::string& what,
                 DeviceChoice choice,
                 const device::CudaCensus& gpus) {
  comm::together(world, [&] {
    if (choose_kind(choice, gpus) == device::Kind::cuda)
      throw UserError(what +
                      " measures only CPUs, but this deck would use GPUs; set run.device=cpu");
  });
}

std::unique_ptr<device::Device> open_device(DeviceChoice choice,
                                            int threads,
                                            comm::World& world,
                                            std::vector<std::string>* notes) {
  if (choice == DeviceChoice::cpu)
    return device::make_cpu_device(threads);
  if (world.size() > 1)
    device::load_kernels_eagerly();
  const device::CudaCensus gpus = device::count_cuda_devices();
  if (choice == DeviceChoice::automatic) {
    if (!all_have(world, choose_kind(choice, gpus) == device::Kind::cuda,
                  "run.device: auto is the CPU, because there is no GPU for", notes))
      return device::make_cpu_device(threads);
  }
  std::unique_ptr<device::Device> opened;
  comm::together(world, [&] { opened = device::make_cuda_device(index_of_gpu(gpus, world)); });
  if (const std::string note = isolation_note(world, gpus.count, opened->description());
      !note.empty() && notes != nullptr)
    notes->push_back(note);
  return opened;
}

comm::Options communicator_options(const Sections& sections, const layout::ReplicaRanks& replicas) {
  const reduce::ParallelConfig& config = sections.parallel;
  comm::Options options{.registers_memory = config.register_buffers,
                        .most_blocks = static_cast<int>(config.nccl_blocks.value_or(0)),
                        .bf16_sum = config.nccl_bf16_sum,
                        .replicas = replicas,
                        .sums_inside = sections.optimizer.outer.on()};
  if (config.gradient_dtype != reduce::GradientDType::bf16)
    options.bf16_sum_bytes = 0;
  return options;
}

ops::Options operation_options(const Job& job, const device::Device& device) {
  ops::Options options{.products = job.gpu.products, .attention = job.gpu.attention};
  options.products.blocks = static_cast<int>(job.parallel.product_blocks.value_or(0));
  options.products.workspace_bytes = job.gpu.product_workspace_bytes(device.memory().total_bytes);
  return options;
}

std::vector<std::string> gpu_table(comm::World& world, const device::Device& device) {
  if (device.kind() != device::Kind::cuda)
    return {};
  const auto mine = comm::place_here(world.host(), 1);
  std::vector<std::string> lines = world.gather_all(fmt::format(
      "{}: {}, CPUs {}", world.host(), device.description(), comm::ranges_text(mine.cpus)));
  for (std::size_t rank = 0; rank < lines.size(); ++rank)
    lines[rank] = fmt::format("rank {} on {}", rank, lines[rank]);
  return lines;
}

DType choose_dtype(Precision precision,
                   bool fast_bf16,
                   comm::World& world,
                   std::vector<std::string>* notes) {
  switch (precision) {
    case Precision::fp32:
      return DType::f32;
    case Precision::bf16:
      return DType::bf16;
    case Precision::automatic:
      break;
  }
  const bool all =
      all_have(world, fast_bf16,
               "run.precision: auto is fp32, because bf16 is no faster than fp32 for", notes);
  return all ? DType::bf16 : DType::f32;
}

DType choose_dtype(Precision precision,
                   const device::Device& device,
                   comm::World& world,
                   std::vector<std::string>* notes) {
  return choose_dtype(precision, ops::has_fast_bf16(device), world, notes);
}

}  // namespace trireme::session
