// SPDX-License-Identifier: Apache-2.0
// What control groups limit this process to. A limit of a group holds for all groups below it, so
// the least of the group and its ancestors counts, as far up as they are visible: inside of a
// container those above its own are hidden, and their limits not known.
//
// Version 2, version 1, and both (hybrid: each controller is in one of them) are read. Sources:
// Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst of Linux, cgroups(7), and
// proc(5) for mountinfo.
//
//   memory  memory.max; memory.high as well, above which the kernel slows a process down until
//           pages are reclaimed, which a training has none of; memory.limit_in_bytes
//   threads pids.max
//   CPUs    cpu.max; cpu.cfs_quota_us over cpu.cfs_period_us; cpu.stat for how often it was met
//
// What others in a group use is missing from what is free; pages of files that have not been used
// lately do not count as used, since the kernel drops them first.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

/// Of a limit that is not set.
inline constexpr std::int64_t unlimited = -1;

struct GroupLimits {
  double cpus = 0;  ///< 0: none
  std::int64_t memory_bytes = unlimited;
  /// The least that any of the groups has left: its limit without what all in it use.
  std::int64_t memory_free_bytes = unlimited;
  std::int64_t threads = unlimited;  ///< processes count as well

  bool operator==(const GroupLimits&) const = default;
};

/// `process` has the files `cgroup` and `mountinfo`; `root` goes before the mount points in them.
/// Both have other values for tests only.
GroupLimits limits_of_groups(const std::string& process = "/proc/self",
                             const std::string& root = "");

/// Periods of the CPU quota, and those in which it was used up: of the group, or its ancestor, with
/// most of the latter. 0 without a quota.
struct GroupThrottling {
  std::int64_t periods = 0, throttled = 0;
};
GroupThrottling throttling_of_groups(const std::string& process = "/proc/self",
                                     const std::string& root = "");

/// cpu.max ("200000 100000", "max 100000") in CPUs; 0: no limit.
double cpus_of_quota(std::string_view text);

}  // namespace trireme
