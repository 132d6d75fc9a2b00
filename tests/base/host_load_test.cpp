// SPDX-License-Identifier: Apache-2.0
#include "base/host_load.hpp"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include "support/scratch_directory.hpp"

namespace trireme {
namespace {

std::string reason(const HostLoad& after, double busy_s = 0) {
  HostLoad before;
  before.cpu_waits_ns["7"] = 1'000'000'000;
  const auto found = slowdowns(before, after, busy_s);
  EXPECT_LE(found.size(), 1U) << ::testing::PrintToString(found);
  return found.empty() ? "" : found.front();
}

TEST(HostLoad, IsAReasonAboveAThreshold) {
  EXPECT_EQ(reason({.at_s = 10}), "");
  EXPECT_EQ(reason({.at_s = 10, .periods = 100, .throttled_periods = 2}), "");
  EXPECT_EQ(reason({.at_s = 10, .periods = 100, .throttled_periods = 48}),
            "the CPU quota of its control group was used up in 48 of 100 periods");
  EXPECT_EQ(reason({.at_s = 10, .cpu_waits_ns = {{"7", 1'400'000'000}, {"9", 90'000'000'000}}}),
            "");  // the second is a new thread
  EXPECT_EQ(
      reason({.at_s = 10, .cpu_waits_ns = {{"7", 5'000'000'000}}, .load_average = 3.25, .cpus = 2}),
      "one of its threads waited for a CPU 40 % of the time, so other threads or processes "
      "use its 2 CPUs (load average 3.2)");
  EXPECT_EQ(reason({.at_s = 10, .thermal_events = 3}),
            "its CPUs were too hot (3 throttling events)");
  EXPECT_EQ(reason({.at_s = 10, .frequency_ghz = 2.3, .usual_ghz = 2.4}), "");
  EXPECT_EQ(reason({.at_s = 10, .frequency_ghz = 1.2, .usual_ghz = 2.4}),
            "its CPU runs at 1.20 GHz, below 2.40 GHz");
  EXPECT_EQ(reason({.at_s = 10, .memory_stall_us = 2'000'000}),
            "processes of the host waited for memory 20 % of the time");
  EXPECT_EQ(reason({.at_s = 10, .major_faults = 1000}),
            "it read 1000 pages from a disk (swapped out?)");
  EXPECT_EQ(reason({.at_s = 10, .main_thread_ns = 4'000'000'000}, 4.2), "");
  EXPECT_EQ(reason({.at_s = 10, .main_thread_ns = 4'000'000'000}, 7),
            "it had work but did not run 30 % of the time: stopped by signals or a debugger, or "
            "waiting for pages or files");
}

TEST(HostLoad, NamesMemoryOnOtherNodesThanTheCpus) {
  cpu_set_t usable;
  ASSERT_EQ(sched_getaffinity(0, sizeof usable, &usable), 0);
  const test::ScratchDirectory scratch;
  std::filesystem::create_directories(scratch.path() + "/proc/self");
  const auto found = [&](const std::string& maps) {
    std::ofstream(scratch.path() + "/proc/self/numa_maps") << maps;
    return misplaced_memory(scratch.path());
  };
  const std::string maps =
      "7f0000 default anon=100 dirty=100 N0=75 N1=25 kernelpagesize_kB=4\n"
      "7f1000 default file=/dev/shm/segment dirty=900 N1=900 kernelpagesize_kB=4\n"
      "7f2000 default anon=1 N1=1 kernelpagesize_kB=2048\n";
  EXPECT_EQ(found(maps), "");  // the nodes of the CPUs are not known
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &usable))
      std::filesystem::create_directories(scratch.path() + "/sys/devices/system/cpu/cpu" +
                                          std::to_string(cpu) + "/node0");
  // 300 KiB on node 0; 100 KiB and a page of 2 MiB on node 1.
  EXPECT_EQ(found(maps),
            "87 % of its memory is on other NUMA nodes than its CPUs; start ranks with "
            "`mpirun --map-by numa --bind-to numa`");
  EXPECT_EQ(found("7f0000 default anon=100 N0=80 N1=20 kernelpagesize_kB=4\n"), "");
  EXPECT_EQ(found(""), "");
}

TEST(HostLoad, IsReadFromTheFilesOfTheKernel) {
  cpu_set_t usable;
  ASSERT_EQ(sched_getaffinity(0, sizeof usable, &usable), 0);
  const test::ScratchDirectory scratch;
  const auto write = [&](const std::string& path, const std::string& text) {
    const std::filesystem::path file = scratch.path() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << '\n';
  };
  const std::string process = "/proc/self/", system = "/sys/devices/system/cpu/cpu";
  write(process + "cgroup", "0::/a/b");
  write(process + "mountinfo", "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw");
  write("/sys/fs/cgroup/a/b/cpu.stat", "usage_usec 9\nnr_periods 5\nnr_throttled 1");
  write("/sys/fs/cgroup/a/cpu.stat", "usage_usec 9\nnr_periods 50\nnr_throttled 17");
  write(process + "task/" + std::to_string(getpid()) + "/schedstat", "71 13 2");
  write(process + "task/1/schedstat", "5 6 7");
  write("/proc/pressure/memory",
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=77\n"
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=33");
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &usable)) {
      const std::string folder = system + std::to_string(cpu);
      write(folder + "/thermal_throttle/core_throttle_count", "2");
      write(folder + "/thermal_throttle/package_throttle_count", "3");
      write(folder + "/cpufreq/scaling_cur_freq", "1200000");
      write(folder + "/cpufreq/cpuinfo_max_freq", "3600000");
    }
  const HostLoad load = load_of_this_process(scratch.path());
  EXPECT_EQ(load.periods, 50);
  EXPECT_EQ(load.throttled_periods, 17);
  EXPECT_EQ(load.cpu_waits_ns.at("1"), 6);
  EXPECT_EQ(load.cpu_waits_ns.at(std::to_string(getpid())), 13);
  EXPECT_EQ(load.main_thread_ns, 71);
  EXPECT_EQ(load.memory_stall_us, 77);
  EXPECT_EQ(load.cpus, CPU_COUNT(&usable));
  EXPECT_EQ(load.thermal_events, 3);
  EXPECT_NEAR(load.frequency_ghz, 1.2, 1e-9);
  EXPECT_NEAR(load.usual_ghz, 1.8, 1e-9);
}

TEST(HostLoad, OfAHostThatHidesEverythingIsNoReason) {
  const test::ScratchDirectory nothing;
  const HostLoad before = load_of_this_process(nothing.path());
  EXPECT_TRUE(slowdowns(before, load_of_this_process(nothing.path()), 0).empty());
}

}  // namespace
}  // namespace trireme
