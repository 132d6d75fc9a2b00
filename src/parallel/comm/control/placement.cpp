// SPDX-License-Identifier: Apache-2.0
#include "comm/control/placement.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <set>

#include <sched.h>
#include <unistd.h>

#include "base/text.hpp"

#include "comm/control/together.hpp"

namespace trireme::comm {
namespace {

struct FreeCpuSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};

std::vector<int> allowed_cpus() {
  for (int most = 1024; most <= 1 << 20; most *= 4) {
    const std::unique_ptr<cpu_set_t, FreeCpuSet> set(CPU_ALLOC(static_cast<std::size_t>(most)));
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(most));
    if (!set)
      throw std::bad_alloc();
    if (sched_getaffinity(0, bytes, set.get()) == 0) {
      std::vector<int> cpus;
      for (int cpu = 0; cpu < most; ++cpu)
        if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, set.get()))
          cpus.push_back(cpu);
      return cpus;
    }
    if (errno != EINVAL)  // EINVAL: the kernel's mask is longer
      break;
  }
  throw DeviceError("kernel", "sched_getaffinity", std::strerror(errno));
}

/// "ranks 0-3" or "rank 2".
std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", ranges_text(ranks));
}

/// Data for the lines about one host.
struct HostSummary {
  const Placement& placement;
  const std::string& host;
  std::vector<int> ranks = placement.ranks_on(host);
  std::set<int> cpus{};
  int threads = 0;
  bool bound = false;
  std::set<int> thread_counts{};

  HostSummary(const Placement& all, const std::string& name) : placement(all), host(name) {
    for (const int r : ranks) {
      const RankPlace& place = at(r);
      cpus.insert(place.cpus.begin(), place.cpus.end());
      threads += place.threads;
      bound = bound || place.bound();
      thread_counts.insert(place.threads);
    }
  }
  [[nodiscard]] const RankPlace& at(int rank) const {
    return placement.ranks[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] int host_cpus() const { return at(ranks.front()).host_cpus; }

  [[nodiscard]] std::string line() const {
    std::string text = fmt::format("  {}: {}, {} of {} CPUs, {} thread{} per rank, ", host,
                                   ranks_text(ranks), cpus.size(), host_cpus(),
                                   ranges_text({thread_counts.begin(), thread_counts.end()}),
                                   *thread_counts.rbegin() == 1 ? "" : "s");
    if (!bound)
      return text + "not bound";
    text += "bound to ";
    constexpr std::size_t most = 8;
    for (std::size_t i = 0; i < std::min(ranks.size(), most); ++i)
      text += (i == 0 ? "" : " | ") + ranges_text(at(ranks[i]).cpus);
    return text + (ranks.size() > most ? " | …" : "");
  }
};

void add_warnings(const HostSummary& host, std::vector<PlacementLine>& lines) {
  std::vector<int> starved;
  for (const int r : host.ranks)
    if (static_cast<int>(host.at(r).cpus.size()) < host.at(r).threads)
      starved.push_back(r);
  const auto warn = [&](std::string text, std::string remedy) {
    lines.push_back({std::move(text), true, std::move(remedy)});
  };
  if (!starved.empty()) {
    const RankPlace& first = host.at(starved.front());
    warn(fmt::format("{} on {} may use {} but compute{} with {}", ranks_text(starved), host.host,
                     counted(std::ssize(first.cpus), "CPU"), starved.size() == 1 ? "s" : "",
                     counted(first.threads, "thread")),
         "pass --bind-to none to mpirun, or set run.threads");
  }
  if (host.ranks.size() > host.cpus.size())
    warn(fmt::format("{} share {} on {}, so measured times mean little",
                     counted(std::ssize(host.ranks), "rank"), counted(std::ssize(host.cpus), "CPU"),
                     host.host),
         fmt::format("start at most {} there", counted(std::ssize(host.cpus), "rank")) +
             (host.bound ? ", or pass --bind-to none to mpirun" : ""));
  else if (starved.empty() && host.threads > static_cast<int>(host.cpus.size()))
    warn(fmt::format("{} of all ranks share {} on {}", counted(host.threads, "thread"),
                     counted(std::ssize(host.cpus), "CPU"), host.host),
         "lower run.threads");
  else if (starved.empty() && host.bound && static_cast<int>(host.cpus.size()) < host.host_cpus())
    warn(fmt::format("{} on {} are bound to {} of {} CPUs, the others idle", ranks_text(host.ranks),
                     host.host, host.cpus.size(), host.host_cpus()),
         "to use them, pass --bind-to none to mpirun, or --cpus-per-task to Slurm");
}

}  // namespace

std::vector<std::string> Placement::hosts() const {
  std::vector<std::string> names;
  for (const RankPlace& place : ranks)
    if (std::ranges::find(names, place.host) == names.end())
      names.push_back(place.host);
  return names;
}

std::vector<int> Placement::ranks_on(const std::string& host) const {
  std::vector<int> found;
  for (std::size_t r = 0; r < ranks.size(); ++r)
    if (ranks[r].host == host)
      found.push_back(static_cast<int>(r));
  return found;
}

RankPlace place_here(const std::string& host, int threads) {
  return {host, allowed_cpus(), static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)), threads};
}

Placement gather_placement(World& world, int threads) {
  return {gather_packed(world, place_here(world.host(), threads))};
}

std::vector<PlacementLine> describe(const Placement& placement) {
  const auto hosts = placement.hosts();
  std::vector<PlacementLine> lines{
      {fmt::format("{} on {}", counted(std::ssize(placement.ranks), "rank"),
                   counted(std::ssize(hosts), "host")),
       false,
       {}}};
  std::vector<PlacementLine> warnings;
  for (const std::string& name : hosts) {
    const HostSummary host(placement, name);
    lines.push_back({host.line(), false, {}});
    add_warnings(host, warnings);
  }
  lines.insert(lines.end(), warnings.begin(), warnings.end());
  return lines;
}

std::string ranges_text(const std::vector<int>& ascending) {
  std::string text;
  for (std::size_t i = 0; i < ascending.size();) {
    std::size_t last = i;
    while (last + 1 < ascending.size() && ascending[last + 1] == ascending[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(ascending[i]);
    if (last > i)
      text += "-" + std::to_string(ascending[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace trireme::comm
