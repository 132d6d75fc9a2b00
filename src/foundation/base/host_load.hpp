// SPDX-License-Identifier: Apache-2.0
// Why this process may compute more slowly than its peers on other hosts, as far as the kernel says
// so: a control group that is out of its quota, CPUs shared with other processes, thermal
// throttling, low frequencies, memory pressure, page faults that read a disk.
//
// Most of these are counters, so a HostLoad is read twice and compared. A reading takes some tens of
// microseconds, a little more for each thread, and up to 10 ms where Linux measures the frequency of
// the CPU. It needs no privileges. What a kernel or a container hides is left out.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace trireme {

struct HostLoad {
  double at_s = 0;                                  ///< steady clock
  std::int64_t periods = 0, throttled_periods = 0;  ///< of the quota of the control groups
  std::map<std::string, std::int64_t> cpu_waits_ns =
      {};                                              ///< by thread: it was ready, but had no CPU
  std::int64_t main_thread_ns = 0;                     ///< CPU time of the main thread
  std::int64_t major_faults = 0, memory_stall_us = 0;  ///< the latter of the whole host
  std::int64_t thermal_events = 0;                     ///< of the CPUs that this process may use
  double frequency_ghz = 0, usual_ghz = 0;  ///< of the CPU on which it runs; 0: not known
  double load_average = 0;
  int cpus = 0;  ///< that this process may use
};

/// `root` goes before /proc and /sys, for tests.
HostLoad load_of_this_process(const std::string& root = "");

/// What slowed this process down between two loads, the clearest reason first. `busy_s`: seconds
/// between them in which its main thread had work, if that is known, else 0.
std::vector<std::string> slowdowns(const HostLoad& before, const HostLoad& after, double busy_s);

/// What is wrong with the NUMA nodes of this process's memory, or "". Linux walks all of its pages:
/// up to a second for 100 GB.
std::string misplaced_memory(const std::string& root = "");

}  // namespace trireme
