// SPDX-License-Identifier: Apache-2.0
// Reads the limits that Linux control groups (cgroups) set for this process. A limit applies to a
// group and its descendants, so the minimum over the group and its ancestors counts. In a
// container, ancestors above the container's own group are hidden, so their limits are unknown.
//
// Supports versions 1 and 2, and the hybrid of both, in which each controller belongs to one of
// them. Sources: Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst of Linux,
// cgroups(7), and proc(5) for mountinfo.
//
//   memory  memory.max; memory.high, above which the kernel throttles the process and reclaims
//           memory (training has little to reclaim); memory.limit_in_bytes
//   threads pids.max
//   CPUs    cpu.max; cpu.cfs_quota_us over cpu.cfs_period_us; cpu.stat counts throttling
//
// Free memory excludes what other processes in a group use. Inactive page cache does not count as
// used, because the kernel reclaims it first.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

/// Value of a limit that is not set.
inline constexpr std::int64_t unlimited = -1;

struct GroupLimits {
  double cpus = 0;  ///< CPU quota; 0: no limit
  std::int64_t memory_bytes = unlimited;
  /// Minimum over the groups of the limit minus what all processes of the group use.
  std::int64_t memory_free_bytes = unlimited;
  std::int64_t threads = unlimited;  ///< processes count as threads

  bool operator==(const GroupLimits&) const = default;
};

/// `process` is the directory with the files `cgroup` and `mountinfo`; `root` is a prefix of the
/// mount points in them. Only tests change the defaults.
GroupLimits limits_of_groups(const std::string& process = "/proc/self",
                             const std::string& root = "");

/// Number of CPU quota periods, and of those in which the quota was used up, for the most throttled
/// of the group and its ancestors. 0 without a quota.
struct GroupThrottling {
  std::int64_t periods = 0, throttled = 0;
};
GroupThrottling throttling_of_groups(const std::string& process = "/proc/self",
                                     const std::string& root = "");

/// Converts cpu.max ("200000 100000", "max 100000") to a number of CPUs; 0: no limit.
double cpus_of_quota(std::string_view text);

}  // namespace trireme
