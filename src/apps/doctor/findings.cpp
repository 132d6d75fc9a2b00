// SPDX-License-Identifier: Apache-2.0
#include "doctor/findings.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/quantile.hpp"
#include "base/text.hpp"

#include "session/host_memory.hpp"

namespace trireme::doctor {
namespace {

constexpr std::int64_t mebibyte = 1 << 20;

void find_about_gpus(const Report& report, std::vector<Finding>& found) {
  std::map<std::string, int> through_host;
  for (const GpuPair& pair : report.gpu_pairs)
    if (pair.expected == "SHM" || pair.expected == "NET")
      ++through_host[pair.host];
  for (const auto& [host, pairs] : through_host)
    found.push_back({fmt::format("NCCL has no direct path between GPUs of {} of ranks on {}",
                                 counted(pairs, "pair"), host),
                     "let every rank see all GPUs of its host (Slurm: --gpu-bind=none), and check "
                     "nvidia-smi topo -p2p r and NCCL_P2P_DISABLE; reductions through host memory "
                     "are slower"});
}

void find_slow_ranks(const Report& report,
                     const std::vector<double>& rates,
                     const char* what,
                     std::vector<Finding>& found) {
  if (rates.size() < 2)
    return;
  const double middle = median(rates);
  for (std::size_t rank = 0; rank < rates.size(); ++rank)
    if (rates[rank] < slow_share * middle)
      found.push_back(
          {fmt::format("rank {} on {} reaches {:.0f} % of the median rank in {}", rank,
                       report.placement.ranks[rank].host, 100 * rates[rank] / middle, what),
           "check for other programs, a lower clock or fewer memory modules on this host; every "
           "step waits for its slowest rank"});
}

/// Requires three or more pairs, most of which are alike.
void find_slow_pairs(const Report& report, std::vector<Finding>& found) {
  if (report.pairs.size() < 3)
    return;
  std::vector<double> latencies, rates;
  for (const bench::RankPair& pair : report.pairs) {
    latencies.push_back(pair.latency_s);
    rates.push_back(pair.bytes_per_s);
  }
  const double latency = median(latencies), rate = median(rates);
  const auto late = std::ranges::max_element(report.pairs, {}, &bench::RankPair::latency_s);
  const auto slow = std::ranges::min_element(report.pairs, {}, &bench::RankPair::bytes_per_s);
  const std::string remedy =
      "check these hosts for another network, a slower switch, a bad cable or other traffic, or "
      "exclude one of them; every collective waits for its slowest link";
  if (late->latency_s > slow_pair * latency)
    found.push_back(
        {fmt::format("a message between {} takes {:.1f} us, {:.1f} times the median of all pairs",
                     pair_name(report, *late), late->latency_s * 1e6, late->latency_s / latency),
         remedy});
  if (slow->bytes_per_s < rate / slow_pair)
    found.push_back(
        {fmt::format("the bandwidth between {} is {:.3g} GB/s, {:.0f} % of the median of all pairs",
                     pair_name(report, *slow), slow->bytes_per_s / 1e9,
                     100 * slow->bytes_per_s / rate),
         remedy});
}

void find_unequal_hosts(const Report& report, std::vector<Finding>& found) {
  std::set<std::string> processors;
  std::set<std::vector<std::string>> features;
  for (const HostFacts& host : report.hosts) {
    processors.insert(host.processor);
    features.insert(host.features);
  }
  if (processors.size() > 1)
    found.push_back(
        {fmt::format("the hosts have {} kinds of processors", processors.size()),
         "request hosts of one kind from the scheduler (Slurm: --constraint); every step waits for "
         "the slowest"});
  else if (features.size() > 1)
    found.push_back({"hosts with equal processors have different instruction sets",
                     "compare /proc/cpuinfo; a kernel or a virtual machine hides some of them"});
}

void find_about_host(const HostFacts& host, int ranks, int peers, std::vector<Finding>& found) {
  const std::string on = " on " + host.host;
  if (host.cpu_limit > 0 && host.cpu_limit < host.cpus)
    found.push_back({fmt::format("a control group limits this job to {:.3g} of {} CPUs{}",
                                 host.cpu_limit, host.cpus, on),
                     "request more CPUs, or set run.threads so that all ranks together use at most "
                     "this number"});
  if (host.memory_limit_bytes != unlimited && host.memory_limit_bytes < host.memory_bytes)
    found.push_back(
        {fmt::format("a control group limits this job to {} of {} of memory{}, {} of it free",
                     size_text(host.memory_limit_bytes), size_text(host.memory_bytes), on,
                     size_text(usable_bytes(host))),
         "compare with the memory that trireme plan DECK prints, and request it from the "
         "scheduler"});
  if (host.governor == "powersave")
    found.push_back({"the CPU frequency governor is powersave" + on,
                     "an administrator can set it to performance (cpupower frequency-set)"});
  for (const auto& [text, remedy] :
       session::limit_problems(host.host, host.open_files, host.locked_bytes, peers, true))
    found.push_back({text, remedy});
  if (host.reserved_huge_bytes > host.memory_bytes / 10)
    found.push_back(
        {fmt::format("{} of {} of memory are reserved for huge pages (HugePages_Total){}",
                     size_text(host.reserved_huge_bytes), size_text(host.memory_bytes), on),
         "trireme uses only transparent huge pages, not reserved ones; an administrator can lower "
         "vm.nr_hugepages"});
  if (ranks > 1 && host.shm_free_bytes < std::int64_t{ranks} * 64 * mebibyte)
    found.push_back(
        {fmt::format("/dev/shm has {} free for {} ranks{}", size_text(host.shm_free_bytes), ranks,
                     on),
         "MPI needs space there; remove old files, or start the container with a larger "
         "--shm-size"});
}

void find_about_files(const FileSystem& files, std::vector<Finding>& found) {
  constexpr std::int64_t little = 1LL << 30;
  constexpr double slow_write = 200e6, slow_sync = 0.05;
  const std::string where = fmt::format("{} on {}", files.directory, files.host);
  if (files.type == "tmpfs")
    found.push_back({where + " is memory (tmpfs)",
                     "checkpoints there are lost when the host restarts; use another directory"});
  if (files.free_bytes < little)
    found.push_back(
        {fmt::format("{} has {} free", where, size_text(files.free_bytes)),
         "remove files or use another directory; trireme plan DECK prints the size of a "
         "checkpoint"});
  else if (files.write_bytes_per_s < slow_write)
    found.push_back({fmt::format("{} writes {:.0f} MB/s", where, files.write_bytes_per_s / 1e6),
                     "save checkpoints less often (checkpoint.every_steps), or use another file "
                     "system"});
  if (files.sync_seconds > slow_sync)
    found.push_back({fmt::format("a synchronized write of 4 KiB takes {} in {}",
                                 duration_text(files.sync_seconds), where),
                     "steps do not wait for run.h5, but a checkpoint takes at least this long for "
                     "each file"});
}

}  // namespace

std::optional<Finding> disconnected(const Launch& launch, int ranks) {
  if (launch.processes <= ranks)
    return std::nullopt;
  return Finding{
      fmt::format("{} started {} processes, but MPI connects {} of them", launch.launcher,
                  launch.processes, ranks),
      "each part would run alone. Use the mpirun of the MPI library that trireme was built with "
      "(trireme doctor prints it), or an interface of srun that this library supports (srun "
      "--mpi=list)"};
}

std::vector<Finding> findings_of(const Report& report) {
  std::vector<Finding> found;
  for (const bench::CollectivesBenchRow& row : report.collectives)
    if (row.wrong > 0)
      found.push_back({fmt::format("{} over {} returned {} wrong elements of {}", row.operation,
                                   row.transport, row.wrong, row.count),
                       "do not train on these machines; attach this output to a bug report"});
  for (const comm::PlacementLine& line : comm::describe(report.placement))
    if (line.warning)
      found.push_back({line.text, line.remedy});
  if (auto finding = disconnected(report.launch, static_cast<int>(report.placement.ranks.size())))
    found.push_back(*std::move(finding));
  find_about_gpus(report, found);
  find_slow_ranks(report, report.memory_bytes_per_s, "memory bandwidth", found);
  find_slow_ranks(report, report.fp32_flops, "matrix products in fp32", found);
  find_slow_ranks(report, report.bf16_flops, "matrix products in bf16", found);
  find_slow_pairs(report, found);
  find_unequal_hosts(report, found);
  for (const HostFacts& host : report.hosts) {
    const int ranks = static_cast<int>(report.placement.ranks_on(host.host).size());
    find_about_host(host, ranks, static_cast<int>(report.placement.ranks.size()) - ranks, found);
  }
  for (const FileSystem& files : report.file_systems) find_about_files(files, found);
  return found;
}

}  // namespace trireme::doctor
