// SPDX-License-Identifier: Apache-2.0
#include "base/host_load.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>
#include <sstream>
#include <system_error>

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/control_groups.hpp"
#include "base/kernel_text.hpp"

namespace trireme {
namespace {

/// The number after "KEY" and a separator of one character; 0 where there is none.
std::int64_t number_after(const std::string& text, const std::string& key) {
  const auto at = text.find(key);
  return at == std::string::npos ? 0 : number_at(text.substr(at + key.size() + 1)).value_or(0);
}

/// The two times of /proc/PID/schedstat, in ns: on a CPU, and waiting for one.
std::pair<std::int64_t, std::int64_t> schedule_times(const std::string& text) {
  if (text.empty())
    return {};
  return {number_at(text).value_or(0),
          number_at(text.substr(std::min(text.find(' '), text.size() - 1) + 1)).value_or(0)};
}

/// The CPUs that threads of this process may use: OpenMP may bind the main thread to some of them.
std::vector<int> usable_cpus() {
  std::set<int> found;
  std::error_code ignored;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    cpu_set_t usable;
    CPU_ZERO(&usable);
    const auto id = number_at(thread.path().filename().string()).value_or(0);
    if (sched_getaffinity(static_cast<pid_t>(id), sizeof usable, &usable) == 0)
      for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
        if (CPU_ISSET(cpu, &usable))
          found.insert(cpu);
  }
  return {found.begin(), found.end()};
}

void read_cpus(const std::string& system, HostLoad& load) {
  const std::vector<int> usable = usable_cpus();
  load.cpus = static_cast<int>(usable.size());
  for (const int cpu : usable) {
    const std::string folder = fmt::format("{}/devices/system/cpu/cpu{}/", system, cpu);
    // Threads of a core share a count, as do cores of a package, so use the maximum.
    for (const char* name : {"core_throttle_count", "package_throttle_count"})
      load.thermal_events = std::max(
          load.thermal_events, number_at(text_of(folder + "thermal_throttle/" + name)).value_or(0));
    // Other CPUs may be idle, and Linux then takes up to 10 ms to read a frequency.
    if (cpu != sched_getcpu())
      continue;
    const auto kilohertz = [&](const char* name) {
      return static_cast<double>(number_at(text_of(folder + "cpufreq/" + name)).value_or(0));
    };
    // A CPU is slow below its base frequency, or below half of its maximum if that is unknown.
    const double base = kilohertz("base_frequency");
    load.frequency_ghz = kilohertz("scaling_cur_freq") / 1e6;
    load.usual_ghz = (base > 0 ? base : kilohertz("cpuinfo_max_freq") / 2) / 1e6;
  }
}

/// The NUMA nodes of the CPUs that this process may use.
std::set<std::int64_t> nodes_of_cpus(const std::string& system) {
  std::set<std::int64_t> nodes;
  std::error_code ignored;
  for (const int cpu : usable_cpus())
    for (const auto& entry : std::filesystem::directory_iterator(
             fmt::format("{}/devices/system/cpu/cpu{}", system, cpu), ignored))
      if (const std::string name = entry.path().filename().string(); name.starts_with("node"))
        if (const auto node = number_at(name.substr(4)))
          nodes.insert(*node);
  return nodes;
}

}  // namespace

HostLoad load_of_this_process(const std::string& root) {
  HostLoad load;
  load.at_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  const std::string process = root + "/proc/self";
  const GroupThrottling groups = throttling_of_groups(process, root);
  load.periods = groups.periods;
  load.throttled_periods = groups.throttled;
  std::error_code ignored;
  for (const auto& thread : std::filesystem::directory_iterator(process + "/task", ignored)) {
    const auto [ran, waited] = schedule_times(text_of(thread.path().string() + "/schedstat"));
    const std::string id = thread.path().filename().string();
    load.cpu_waits_ns[id] = waited;
    if (id == std::to_string(getpid()))
      load.main_thread_ns = ran;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  load.major_faults = usage.ru_majflt;
  load.memory_stall_us = number_after(text_of(root + "/proc/pressure/memory"), "total");
  read_cpus(root + "/sys", load);
  getloadavg(&load.load_average, 1);
  return load;
}

std::vector<std::string> slowdowns(const HostLoad& before, const HostLoad& after, double busy_s) {
  std::vector<std::string> found;
  const double elapsed = std::max(after.at_s - before.at_s, 1e-3);
  const auto percent = [&](double seconds) { return 100 * seconds / elapsed; };
  const std::int64_t periods = after.periods - before.periods;
  const std::int64_t throttled = after.throttled_periods - before.throttled_periods;
  if (periods > 0 && 50 * throttled > periods)
    found.push_back(fmt::format(
        "the CPU quota of its control group was used up in {} of {} periods", throttled, periods));
  std::int64_t waited_ns = 0;
  for (const auto& [thread, waits] : after.cpu_waits_ns)
    if (const auto same = before.cpu_waits_ns.find(thread); same != before.cpu_waits_ns.end())
      waited_ns = std::max(waited_ns, waits - same->second);
  const double waited_s = static_cast<double>(waited_ns) * 1e-9;
  if (percent(waited_s) > 5)
    found.push_back(fmt::format(
        "one of its threads waited for a CPU {:.0f} % of the time, so other threads or processes "
        "use its {} CPUs (load average {:.1f})",
        percent(waited_s), after.cpus, after.load_average));
  if (const auto events = after.thermal_events - before.thermal_events; events > 0)
    found.push_back(fmt::format("its CPUs were too hot ({} throttling events)", events));
  if (after.frequency_ghz > 0 && after.frequency_ghz < 0.95 * after.usual_ghz)
    found.push_back(fmt::format("its CPU runs at {:.2f} GHz, below {:.2f} GHz", after.frequency_ghz,
                                after.usual_ghz));
  const double stalled_s =
      static_cast<double>(after.memory_stall_us - before.memory_stall_us) * 1e-6;
  if (percent(stalled_s) > 5)
    found.push_back(fmt::format("processes of the host waited for memory {:.0f} % of the time",
                                percent(stalled_s)));
  const auto faults = after.major_faults - before.major_faults;
  if (static_cast<double>(faults) > 10 * elapsed)
    found.push_back(fmt::format("it read {} pages from a disk (swapped out?)", faults));
  const double ran_s = static_cast<double>(after.main_thread_ns - before.main_thread_ns) * 1e-9;
  if (throttled == 0 && after.main_thread_ns > 0 && percent(busy_s - ran_s - waited_s) > 5)
    found.push_back(fmt::format(
        "it had work but did not run {:.0f} % of the time: stopped by signals or a debugger, or "
        "waiting for pages or files",
        percent(busy_s - ran_s - waited_s)));
  return found;
}

std::string misplaced_memory(const std::string& root) {
  const std::set<std::int64_t> near = nodes_of_cpus(root + "/sys");
  std::int64_t all_kib = 0, far_kib = 0;
  std::istringstream maps(text_of(root + "/proc/self/numa_maps"));
  for (std::string line; std::getline(maps, line);) {
    if (line.find(" file=") != std::string::npos)  // shared with other ranks, or used by none
      continue;
    const std::int64_t page_kib =
        std::max<std::int64_t>(number_after(line, "kernelpagesize_kB"), 4);
    std::istringstream words(line);
    for (std::string word; words >> word;)  // "N1=250": pages on node 1
      if (const auto node = word.starts_with('N') ? number_at(word.substr(1)) : std::nullopt) {
        const std::int64_t kib = page_kib * number_after(word, fmt::format("N{}", *node));
        all_kib += kib;
        far_kib += near.contains(*node) ? 0 : kib;
      }
  }
  if (near.empty() || 5 * far_kib <= all_kib)
    return "";
  return fmt::format(
      "{} % of its memory is on other NUMA nodes than its CPUs; start ranks with "
      "`mpirun --map-by numa --bind-to numa`",
      100 * far_kib / all_kib);
}

}  // namespace trireme
