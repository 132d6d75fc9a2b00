// SPDX-License-Identifier: Apache-2.0
// Finds out from the kernel why this process may compute more slowly than its peers on other hosts:
// a used-up cgroup CPU quota, CPUs shared with other processes, thermal throttling, low
// frequencies, memory pressure, page faults that read from disk.
//
// Most values are counters, so two HostLoads are compared. Reading takes some tens of microseconds,
// a little more per thread, and up to 10 ms if Linux measures the CPU frequency. No privileges are
// needed. Values that the kernel or a container hides are omitted.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace trireme {

struct HostLoad {
  double at_s = 0;                                  ///< steady clock
  std::int64_t periods = 0, throttled_periods = 0;  ///< quota periods of the control groups
  std::map<std::string, std::int64_t> cpu_waits_ns =
      {};                                              ///< by thread: runnable, but without a CPU
  std::int64_t main_thread_ns = 0;                     ///< CPU time of the main thread
  std::int64_t major_faults = 0, memory_stall_us = 0;  ///< memory stalls are of the whole host
  std::int64_t thermal_events = 0;                     ///< of the CPUs that this process may use
  double frequency_ghz = 0, usual_ghz = 0;             ///< of the current CPU; 0: unknown
  double load_average = 0;
  int cpus = 0;  ///< number of CPUs that this process may use
};

/// `root` is a prefix of /proc and /sys, for tests.
HostLoad load_of_this_process(const std::string& root = "");

/// The reasons why this process was slow between two loads, most certain first. `busy_s`: seconds
/// in between in which its main thread had work; 0 if unknown.
std::vector<std::string> slowdowns(const HostLoad& before, const HostLoad& after, double busy_s);

/// A description of memory on remote NUMA nodes, or "" if placement is fine. Linux walks all pages
/// of the process, which takes up to 1 s for 100 GB.
std::string misplaced_memory(const std::string& root = "");

}  // namespace trireme
