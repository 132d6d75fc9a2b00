// SPDX-License-Identifier: Apache-2.0
#include "doctor/report.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <omp.h>

#include "base/json.hpp"
#include "base/quantile.hpp"
#include "base/text.hpp"
#include "device/device.hpp"

#include "model/config.hpp"
#include "ops/matmul.hpp"

#include "comm/control/together.hpp"

#include "session/machine.hpp"

#include "bench/ceiling.hpp"
#include "doctor/findings.hpp"

namespace trireme::doctor {

// These members are in the JSON report as they are.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Launch, launcher, interface, slurm, processes, pmix)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(HostFacts,
                                   host,
                                   kernel,
                                   processor,
                                   features,
                                   governor,
                                   cpus,
                                   cpu_limit,
                                   memory_bytes,
                                   available_bytes,
                                   memory_limit_bytes,
                                   memory_limit_free_bytes,
                                   huge_pages,
                                   shared_huge_pages,
                                   reserved_huge_bytes,
                                   locked_bytes,
                                   open_files,
                                   shm_bytes,
                                   shm_free_bytes,
                                   energy)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(
    FileSystem, host, directory, type, free_bytes, write_bytes_per_s, sync_seconds)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Finding, text, remedy)

namespace {

std::string host_text(const HostFacts& host) {
  std::string features;
  for (const std::string& feature : host.features) features += " " + feature;
  std::string text =
      fmt::format("{}: {}, {} CPUs{}, {} of memory ({} free), {}\n", host.host,
                  host.processor.empty() ? "processor not known" : host.processor, host.cpus,
                  host.cpu_limit > 0 ? fmt::format(" (limited to {:.3g})", host.cpu_limit) : "",
                  size_text(host.memory_bytes), size_text(usable_bytes(host)), host.kernel);
  text += fmt::format("  instruction sets:{}\n", features.empty() ? " not known" : features);
  text += fmt::format("  huge pages: {}, in shared memory {}{}\n",
                      host.huge_pages.empty() ? "not known" : host.huge_pages,
                      host.shared_huge_pages.empty() ? "not known" : host.shared_huge_pages,
                      host.reserved_huge_bytes > 0
                          ? fmt::format(", {} reserved", size_text(host.reserved_huge_bytes))
                          : "");
  text += fmt::format("  energy: {}\n", host.energy);
  return text +
         fmt::format("  locked memory: {}; open files: {}; /dev/shm: {} free\n",
                     size_text(host.locked_bytes),
                     host.open_files == unlimited ? "unlimited" : std::to_string(host.open_files),
                     size_text(host.shm_free_bytes));
}

/// "rank 0" or "ranks 0 to 3: slowest, median, fastest".
std::string rates_text(const std::vector<double>& rates, double unit, const char* name) {
  if (rates.empty())
    return "not measured";
  if (std::ranges::min(rates) <= 0)
    return "not measured: not enough memory";
  if (rates.size() == 1)
    return fmt::format("{:.3g} {}", rates.front() / unit, name);
  return fmt::format("{:.3g} {} per rank (slowest {:.3g}, fastest {:.3g})", median(rates) / unit,
                     name, std::ranges::min(rates) / unit, std::ranges::max(rates) / unit);
}

/// Pairs of one host with the same link on one line; empty on CPUs.
std::string nccl_text(const Report& report) {
  if (report.gpus.empty())
    return {};
  std::string text = fmt::format("NCCL {}; expected, not measured:\n", report.nccl);
  std::map<std::array<std::string, 3>, std::string> alike;
  for (const GpuPair& pair : report.gpu_pairs)
    alike[{pair.host, pair.expected, pair.link}] += fmt::format(" {}-{}", pair.first, pair.second);
  for (const auto& [key, pairs] : alike)
    text += fmt::format("  {} on {}: {} between ranks{}\n", key[1], key[0], key[2], pairs);
  if (report.hosts.size() > 1)
    text += "  NET between hosts\n";
  for (const std::string& setting : report.nccl_settings) text += "  " + setting + "\n";
  return text;
}

/// Latency and bandwidth of one pair, or of all: median, minimum, maximum and the slowest pair.
std::string pairs_text(const Report& report) {
  if (report.pairs.empty())
    return {};
  const bool hosts = report.hosts.size() > 1;
  const auto name = [&](const bench::RankPair& pair) { return pair_name(report, pair); };
  const auto line = [&](const char* of, const std::string& value) {
    return fmt::format("  {:<32}{}\n", fmt::format("{} between {}", of, hosts ? "hosts" : "ranks"),
                       value);
  };
  const bench::RankPair& one = report.pairs.front();
  if (report.pairs.size() == 1)
    return line("latency", fmt::format("{:.1f} us, {}", one.latency_s * 1e6, name(one))) +
           line("bandwidth", fmt::format("{:.3g} GB/s, {}", one.bytes_per_s / 1e9, name(one)));
  const auto [nearest, farthest] =
      std::ranges::minmax_element(report.pairs, {}, &bench::RankPair::latency_s);
  const auto [slowest, fastest] =
      std::ranges::minmax_element(report.pairs, {}, &bench::RankPair::bytes_per_s);
  std::vector<double> latencies, rates;
  for (const bench::RankPair& pair : report.pairs) {
    latencies.push_back(pair.latency_s);
    rates.push_back(pair.bytes_per_s);
  }
  return line("latency",
              fmt::format("{:.1f} us, median of {} pairs (minimum {:.1f}, maximum {:.1f}: {})",
                          median(latencies) * 1e6, latencies.size(), nearest->latency_s * 1e6,
                          farthest->latency_s * 1e6, name(*farthest))) +
         line("bandwidth",
              fmt::format("{:.3g} GB/s, median of {} pairs (maximum {:.3g}, minimum {:.3g}: {})",
                          median(rates) / 1e9, rates.size(), fastest->bytes_per_s / 1e9,
                          slowest->bytes_per_s / 1e9, name(*slowest)));
}

std::string collective_text(const bench::CollectivesBenchRow& row) {
  const std::string name = fmt::format("{} of {}", row.operation, size_text(row.bytes));
  const std::string value = row.bytes < (1 << 20)
                                ? fmt::format("{:.1f} us", row.seconds * 1e6)
                                : fmt::format("{:.3g} GB/s bus bandwidth", row.busbw / 1e9);
  return fmt::format("  {:<32}{} over {}\n", name, value, row.transport);
}

constexpr double most_seconds_of_pairs = 4;

/// Facts of each host, collected by its first rank.
std::vector<HostFacts> gather_facts(comm::World& world, const device::Device& device) {
  std::optional<HostFacts> mine;
  if (world.local_rank() == 0)
    mine = facts_of_this_host(world.host(), device.uuid());
  std::vector<HostFacts> hosts;
  for (auto& host : comm::gather_packed(world, mine))
    if (host)
      hosts.push_back(*std::move(host));
  return hosts;
}

/// Collective.
std::vector<GpuPair> gather_pairs(comm::World& world, const device::Device& device) {
  if (device.kind() != device::Kind::cuda)
    return {};
  RankGpu mine;
  comm::together(world, [&] { mine = gpu_of_this_rank(world.host(), device); });
  return pairs_of(comm::gather_packed(world, mine));
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

std::string pair_name(const Report& report, const bench::RankPair& pair) {
  const auto host_of = [&](int rank) -> const std::string& {
    return report.placement.ranks.at(static_cast<std::size_t>(rank)).host;
  };
  if (host_of(pair.first) == host_of(pair.second))
    return fmt::format("ranks {} and {} on {}", pair.first, pair.second, host_of(pair.first));
  return fmt::format("{} and {}", host_of(pair.first), host_of(pair.second));
}

std::string problem_text(const Problem& problem) {
  return fmt::format("{}: not measured, or not on all ranks (rank {}): {}", problem.part,
                     problem.rank, problem.reason);
}

std::string report_text(const Report& report) {
  std::string text = report.mpi + "\n" + launch_text(report.launch) + "\n";
  for (const HostFacts& host : report.hosts) text += host_text(host);
  for (const comm::PlacementLine& line : comm::describe(report.placement))
    if (!line.warning)
      text += line.text + "\n";
  text += report.no_gpu.empty() ? "" : "GPU: none (" + report.no_gpu + ")\n";
  for (const std::string& line : report.gpus) text += line + "\n";
  text += nccl_text(report);
  text += fmt::format(
      "computes on {}; precision: auto is {}\n\nmeasured on all ranks at the same time:\n",
      report.device, report.fast_bf16 ? "bf16" : "fp32");
  const auto row = [&](const char* name, const std::string& value) {
    text += fmt::format("  {:<32}{}\n", name, value);
  };
  row("memory", rates_text(report.memory_bytes_per_s, 1e9, "GB/s"));
  row("matrix products in fp32", rates_text(report.fp32_flops, 1e12, "TFLOP/s"));
  row("matrix products in bf16", rates_text(report.bf16_flops, 1e12, "TFLOP/s"));
  text += pairs_text(report);
  for (const bench::CollectivesBenchRow& collective : report.collectives)
    text += collective_text(collective);
  for (const FileSystem& files : report.file_systems)
    text += fmt::format("  {:<32}{:.3g} GB/s, {} per synchronized 4 KiB, {} free ({}, {})\n",
                        "files in " + files.directory, files.write_bytes_per_s / 1e9,
                        duration_text(files.sync_seconds), size_text(files.free_bytes), files.type,
                        files.host);

  const auto findings = findings_of(report);
  text += findings.empty() && report.problems.empty() ? "\nno problems found\n" : "\n";
  for (const Problem& problem : report.problems)
    text += fmt::format("error: {}\n", problem_text(problem));
  for (const Finding& finding : findings)
    text += fmt::format("warning: {}{}{}\n", finding.text, finding.remedy.empty() ? "" : ": ",
                        finding.remedy);
  return text;
}

std::string report_json(const Report& report) {
  Json json;
  json["mpi"] = report.mpi;
  json["launch"] = nlohmann::json(report.launch);
  json["hosts"] = nlohmann::json(report.hosts);
  json["ranks"] = Json::array();
  for (const comm::RankPlace& rank : report.placement.ranks)
    json["ranks"].push_back({{"host", rank.host}, {"cpus", rank.cpus}, {"threads", rank.threads}});
  json["device"] = report.device;
  json["no_gpu"] = report.no_gpu;
  json["gpus"] = report.gpus;
  json["nccl"] = report.nccl;
  json["nccl_settings"] = report.nccl_settings;
  json["gpu_pairs"] = Json::array();
  for (const GpuPair& pair : report.gpu_pairs)
    json["gpu_pairs"].push_back({{"ranks", {pair.first, pair.second}},
                                 {"host", pair.host},
                                 {"link", pair.link},
                                 {"expected", pair.expected}});
  json["fast_bf16"] = report.fast_bf16;
  json["memory_bytes_per_s"] = report.memory_bytes_per_s;
  json["fp32_flops"] = report.fp32_flops;
  json["bf16_flops"] = report.bf16_flops;
  json["collectives"] = bench::collectives_json(report.collectives).at("rows");
  json["pairs"] = Json::array();
  for (const bench::RankPair& pair : report.pairs)
    json["pairs"].push_back({{"ranks", {pair.first, pair.second}},
                             {"latency_s", pair.latency_s},
                             {"bytes_per_s", pair.bytes_per_s}});
  json["file_systems"] = nlohmann::json(report.file_systems);
  json["problems"] = Json::array();
  for (const Problem& problem : report.problems)
    json["problems"].push_back(
        {{"part", problem.part}, {"rank", problem.rank}, {"reason", problem.reason}});
  json["warnings"] = nlohmann::json(findings_of(report));
  return json_text(json);
}

Report examine(comm::World& world, const Request& request) {
  Report report;
  expect_writable(world, request.directory);
  const int threads = session::choose_threads(request.threads, world);
  omp_set_num_threads(threads);
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
