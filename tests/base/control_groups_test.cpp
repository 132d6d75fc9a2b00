// SPDX-License-Identifier: Apache-2.0
#include "base/control_groups.hpp"

#include <filesystem>
#include <fstream>
#include <map>

#include <gtest/gtest.h>

#include "support/scratch_directory.hpp"

namespace trireme {
namespace {

constexpr std::int64_t gib = 1LL << 30;

/// The limits on a machine with these files: /proc for the process, /sys/fs/cgroup for groups.
GroupLimits limits_with(const std::map<std::string, std::string>& files) {
  const test::ScratchDirectory scratch;
  for (const auto& [path, text] : files) {
    const std::filesystem::path file = scratch.path() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << '\n';
  }
  return limits_of_groups(scratch.path() + "/proc", scratch.path());
}

std::string bytes(double gibibytes) {
  return std::to_string(static_cast<std::int64_t>(gibibytes * gib));
}

const std::string version_2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw";
const std::string unlimited_1 = "9223372036854771712";

TEST(ControlGroups, GiveCpusByQuotaAndPeriod) {
  EXPECT_EQ(cpus_of_quota("250000 100000\n"), 2.5);
  EXPECT_EQ(cpus_of_quota("max 100000\n"), 0);
  EXPECT_EQ(cpus_of_quota("100000"), 0);
  EXPECT_EQ(cpus_of_quota("100000 0"), 0);
}

TEST(ControlGroups, WithoutLimitsLimitNothing) {
  EXPECT_EQ(limits_with({}), GroupLimits{});
  EXPECT_EQ(limits_with({{"/proc/cgroup", "0::/a"},
                         {"/proc/mountinfo", version_2},
                         {"/sys/fs/cgroup/a/memory.max", "max"},
                         {"/sys/fs/cgroup/a/memory.high", "max"},
                         {"/sys/fs/cgroup/a/cpu.max", "max 100000"}}),
            GroupLimits{});
}

TEST(ControlGroups, OfVersion2LimitWhatIsBelowThem) {
  // As in a Slurm job: the limit is set on the job's group, not on the group of the step.
  const std::string job = "/sys/fs/cgroup/system.slice/job_7";
  std::map<std::string, std::string> files{
      {"/proc/cgroup", "0::/system.slice/job_7/step_0/user/task_0"},
      {"/proc/mountinfo", "23 1 0:5 / /proc rw - proc proc rw\n" + version_2},
      {job + "/memory.max", bytes(8)},
      {job + "/memory.current", bytes(3)},
      {job + "/memory.stat", "anon 5\ninactive_file " + bytes(1)},
      {job + "/cpu.max", "250000 100000"},
      {job + "/step_0/memory.max", "max"},
      {job + "/step_0/user/task_0/memory.max", "max"},
      {job + "/step_0/user/task_0/cpu.max", "max 100000"}};
  EXPECT_EQ(limits_with(files), (GroupLimits{2.5, 8 * gib, 6 * gib}));
  files[job + "/step_0/memory.high"] = bytes(5);
  files[job + "/step_0/memory.current"] = bytes(0.5);
  files[job + "/step_0/cpu.max"] = "50000 100000";
  EXPECT_EQ(limits_with(files), (GroupLimits{0.5, 5 * gib, 9 * gib / 2}));
  files["/sys/fs/cgroup/system.slice/memory.max"] = bytes(100);
  files["/sys/fs/cgroup/system.slice/memory.current"] = bytes(98);
  EXPECT_EQ(limits_with(files), (GroupLimits{0.5, 5 * gib, 2 * gib}))
      << "others use what an ancestor with a higher limit has";
  files["/sys/fs/cgroup/system.slice/memory.current"] = bytes(101);
  EXPECT_EQ(limits_with(files).memory_free_bytes, 0);
}

TEST(ControlGroups, LimitThreads) {
  EXPECT_EQ(limits_with({{"/proc/cgroup", "0::/a"},
                         {"/proc/mountinfo", version_2},
                         {"/sys/fs/cgroup/pids.max", "40"},
                         {"/sys/fs/cgroup/a/pids.max", "max"}})
                .threads,
            40);
  EXPECT_EQ(limits_with(
                {{"/proc/cgroup", "5:pids:/a"},
                 {"/proc/mountinfo", "30 23 0:26 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids"},
                 {"/sys/fs/cgroup/pids/a/pids.max", "7"}})
                .threads,
            7);
}

TEST(ControlGroups, OfVersion1AreFoundByTheirControllers) {
  const std::string memory = "/sys/fs/cgroup/memory", cpu = "/sys/fs/cgroup/cpu,cpuacct";
  std::map<std::string, std::string> files{
      // Hybrid mode: version 1 has the controllers and version 2 has none.
      {"/proc/cgroup",
       "5:memory:/jobs/7\n4:cpuset:/\n3:cpuacct,cpu:/batch\n1:name=systemd:/x\n0::/y"},
      {"/proc/mountinfo",
       "31 23 0:28 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n"
       "32 31 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
       "33 31 0:30 / /sys/fs/cgroup/cpuset rw shared:9 - cgroup cgroup rw,cpuset\n"
       "34 31 0:31 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
       "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"},
      {memory + "/memory.limit_in_bytes", unlimited_1},
      {memory + "/jobs/memory.limit_in_bytes", bytes(4)},
      {memory + "/jobs/memory.usage_in_bytes", bytes(2)},
      {memory + "/jobs/memory.stat", "inactive_file 7\ntotal_inactive_file " + bytes(0.5)},
      {memory + "/jobs/7/memory.limit_in_bytes", unlimited_1},
      {cpu + "/batch/cpu.cfs_quota_us", "-1"},
      {cpu + "/cpu.cfs_quota_us", "300000"},
      {cpu + "/cpu.cfs_period_us", "100000"}};
  EXPECT_EQ(limits_with(files), (GroupLimits{3, 4 * gib, 5 * gib / 2}));
  files[memory + "/jobs/memory.use_hierarchy"] = "0";
  EXPECT_EQ(limits_with(files), (GroupLimits{3, unlimited, unlimited}));
  files[memory + "/jobs/7/memory.limit_in_bytes"] = bytes(6);
  files[memory + "/jobs/7/memory.use_hierarchy"] = "0";
  EXPECT_EQ(limits_with(files).memory_bytes, 6 * gib) << "a group's own limit always holds";
}

TEST(ControlGroups, AreSoughtInWhatAContainerShows) {
  std::map<std::string, std::string> files{
      {"/proc/cgroup", "5:memory:/docker/abc/inner\n0::/../other"},
      // The container's own group is mounted, as without a cgroup namespace.
      {"/proc/mountinfo",
       version_2 + "\n35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"},
      {"/sys/fs/cgroup/memory/memory.limit_in_bytes", bytes(3)},
      {"/sys/fs/cgroup/memory.max", bytes(7)}};
  EXPECT_EQ(limits_with(files).memory_bytes, 3 * gib);
  files["/sys/fs/cgroup/memory/inner/memory.limit_in_bytes"] = bytes(2);
  EXPECT_EQ(limits_with(files).memory_bytes, 2 * gib);
  files["/sys/fs/cgroup/memory.max"] = bytes(1);
  EXPECT_EQ(limits_with(files).memory_bytes, 1 * gib);
}

}  // namespace
}  // namespace trireme
