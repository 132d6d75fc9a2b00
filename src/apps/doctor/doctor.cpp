// SPDX-License-Identifier: Apache-2.0
#include "doctor/doctor.hpp"

#include "base/packing.hpp"
#include "device/device.hpp"

#include "model/config.hpp"
#include "ops/matmul.hpp"

#include "comm/control/together.hpp"

#include "session/machine.hpp"

#include "bench/ceiling.hpp"
#include "bench/rank_pairs.hpp"
#include "doctor/attempts.hpp"

namespace trireme::doctor {
namespace {

constexpr double most_seconds_of_pairs = 4;

/// Facts of each host, collected by its first rank.
std::vector<HostFacts> gather_facts(comm::World& world, const device::Device& device) {
  std::vector<HostFacts> hosts;
  for (const std::string& text : world.gather_all(
           world.local_rank() == 0 ? pack(facts_of_this_host(world.host(), device.uuid())) : ""))
    if (!text.empty())
      hosts.push_back(unpack<HostFacts>(text));
  return hosts;
}

/// Collective.
std::vector<GpuPair> gather_pairs(comm::World& world, const device::Device& device) {
  if (device.kind() != device::Kind::cuda)
    return {};
  std::string mine;
  comm::together(world, [&] { mine = pack(gpu_of_this_rank(world.host(), device)); });
  std::vector<RankGpu> ranks;
  for (const std::string& text : world.gather_all(mine)) ranks.push_back(unpack<RankGpu>(text));
  return pairs_of(ranks);
}

std::vector<bench::CollectivesBenchRow> measure_collectives(comm::World& world,
                                                            device::Device& device) {
  if (world.size() == 1)
    return {};
  bench::CollectivesBenchRequest request;
  request.bytes = {128 * static_cast<std::int64_t>(world.size()), 64 << 20};
  request.repetitions = 11;
  request.seconds = 5;
  request.baselines = false;
  return bench::bench_collectives(world, device, request);
}

}  // namespace

Report examine(comm::World& world, const Request& request) {
  Report report;
  expect_writable(world, request.directory);
  const int threads = session::choose_threads(request.threads, world);
  if (world.size() > 1)
    device::load_kernels_eagerly();
  const auto census = device::count_cuda_devices();
  const auto device = session::open_device(session::DeviceChoice::automatic, threads, world);
  report.mpi = comm::mpi_version();
  report.launch = launch_here();
  report.hosts = gather_facts(world, *device);
  report.placement = comm::gather_placement(world, threads);
  report.device = device->description();
  report.no_gpu = census.why_none;
  report.gpus = session::gpu_table(world, *device);
  report.nccl = comm::nccl_version();
  report.nccl_settings = nccl_settings();
  report.fast_bf16 =
      session::choose_dtype(session::Precision::automatic, *device, world) == DType::bf16;

  Attempts attempts(world, report.problems);
  attempts.measure("links between GPUs",
                   [&](comm::World& all) { report.gpu_pairs = gather_pairs(all, *device); });
  attempts.measure("memory", [&](comm::World& all) {
    report.memory_bytes_per_s = memory_bandwidth(all, threads);
  });
  model::ModelConfig sizes;
  sizes.preset = model::Preset::gpt2_124m;
  const model::GptShape shape = model::resolve(sizes);
  constexpr std::int64_t sequences = 8;
  attempts.measure("matrix products in fp32", [&](comm::World& all) {
    report.fp32_flops = bench::measure_ceilings(shape, DType::f32, sequences, *device, all);
  });
  attempts.measure("matrix products in bf16", [&](comm::World& all) {
    report.bf16_flops = bench::measure_ceilings(shape, DType::bf16, sequences, *device, all);
  });
  attempts.measure("files", [&](comm::World& all) {
    measure_file_systems(all, request.directory, report.file_systems);
  });
  attempts.measure("messages between ranks", [&](comm::World& all) {
    std::vector<std::string> host_of;
    for (const comm::RankPlace& rank : report.placement.ranks) host_of.push_back(rank.host);
    report.pairs = bench::measure_rank_pairs(all, host_of, most_seconds_of_pairs);
  });
  attempts.measure("collectives", [&](comm::World& all) {
    report.collectives = measure_collectives(all, *device);
  });
  return report;
}

}  // namespace trireme::doctor
