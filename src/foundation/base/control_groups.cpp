// SPDX-License-Identifier: Apache-2.0
#include "base/control_groups.hpp"

#include <algorithm>
#include <optional>
#include <sstream>
#include <vector>

#include "base/kernel_text.hpp"

namespace trireme {
namespace {

/// Version 1 writes "no limit" as the largest multiple of the page size.
constexpr std::int64_t no_limit_of_version_1 = std::int64_t{1} << 62;

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) parts.push_back(part);
  return parts;
}

bool has(const std::string& list, const std::string& word) {
  const auto words = split(list, ',');
  return std::ranges::find(words, word) != words.end();
}

/// Path of this process's group in the hierarchy of a version 1 controller, or of version 2 (""). A
/// line is "4:cpu,cpuacct:/user.slice", in version 2 "0::/user.slice".
std::optional<std::string> path_of(const std::string& groups, const std::string& controller) {
  for (const std::string& line : split(groups, '\n')) {
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos)
      continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controller.empty() ? controllers.empty() : has(controllers, controller))
      return line.substr(second + 1);
  }
  return {};
}

/// Directories of the group and its visible ancestors, from the group upwards; empty if the
/// hierarchy is not mounted. A line of mountinfo is "35 31 0:32 ROOT MOUNT_POINT OPTIONS … - TYPE
/// SOURCE SUPER_OPTIONS".
std::vector<std::string> folders_of(const std::string& mounts,
                                    const std::string& controller,
                                    const std::string& path) {
  for (const std::string& line : split(mounts, '\n')) {
    const auto dash = line.find(" - ");
    if (dash == std::string::npos)
      continue;
    const auto fields = split(line.substr(0, dash), ' ');
    const auto source = split(line.substr(dash + 3), ' ');
    if (fields.size() < 5 || source.size() < 3 ||
        source[0] != (controller.empty() ? "cgroup2" : "cgroup") ||
        (!controller.empty() && !has(source[2], controller)))
      continue;
    const std::string above = fields[3] == "/" ? "" : fields[3];
    std::string rest;  // empty if the group is outside of the mount, such as "/.."
    if (path.starts_with(above + "/") && path.find("/..") == std::string::npos)
      rest = path.substr(above.size());
    while (rest.ends_with('/')) rest.pop_back();
    std::vector<std::string> folders;
    for (; !rest.empty(); rest.resize(rest.rfind('/'))) folders.push_back(fields[4] + rest);
    folders.push_back(fields[4]);
    return folders;
  }
  return {};
}

/// The directories of a process's groups.
class Folders {
 public:
  Folders(const std::string& process, const std::string& root)
      : root_(root),
        groups_(text_of(process + "/cgroup")),
        mounts_(text_of(process + "/mountinfo")) {}

  /// For a version 1 controller, or version 2 (""); from the group upwards.
  [[nodiscard]] std::vector<std::string> of(const std::string& controller) const {
    const auto path = path_of(groups_, controller);
    auto folders = path ? folders_of(mounts_, controller, *path) : std::vector<std::string>();
    for (std::string& folder : folders) folder.insert(0, root_);
    return folders;
  }

 private:
  const std::string root_, groups_, mounts_;
};

void lower(std::int64_t& to, std::int64_t limit) {
  to = to == unlimited ? limit : std::min(to, limit);
}

void lower_cpus(double& to, double limit) {
  if (limit > 0)
    to = to > 0 ? std::min(to, limit) : limit;
}

std::int64_t number_of(const std::string& statistics, const char* key) {
  return number_at(value_of(statistics, key)).value_or(0);
}

void lower_memory(GroupLimits& limits, std::int64_t limit, std::int64_t used, std::int64_t files) {
  lower(limits.memory_bytes, limit);
  lower(limits.memory_free_bytes,
        std::max<std::int64_t>(0, limit - std::max<std::int64_t>(0, used - files)));
}

void read_threads(const std::string& folder, GroupLimits& limits) {
  if (const auto limit = number_at(text_of(folder + "/pids.max")))
    lower(limits.threads, *limit);
}

void read_version_2(const std::string& folder, GroupLimits& limits) {
  read_threads(folder, limits);
  lower_cpus(limits.cpus, cpus_of_quota(text_of(folder + "/cpu.max")));
  for (const char* name : {"/memory.max", "/memory.high"})
    if (const auto limit = number_at(text_of(folder + name)))
      lower_memory(limits, *limit, number_at(text_of(folder + "/memory.current")).value_or(0),
                   number_of(text_of(folder + "/memory.stat"), "inactive_file"));
}

void read_cpus_of_version_1(const std::string& folder, GroupLimits& limits) {
  const auto quota = number_at(text_of(folder + "/cpu.cfs_quota_us"));
  if (quota && *quota > 0)
    lower_cpus(limits.cpus, cpus_of_quota(std::to_string(*quota) + " " +
                                          text_of(folder + "/cpu.cfs_period_us")));
}

void read_memory_of_version_1(const std::string& folder, GroupLimits& limits) {
  const auto limit = number_at(text_of(folder + "/memory.limit_in_bytes"));
  if (limit && *limit < no_limit_of_version_1)
    lower_memory(limits, *limit, number_at(text_of(folder + "/memory.usage_in_bytes")).value_or(0),
                 number_of(text_of(folder + "/memory.stat"), "total_inactive_file"));
}

}  // namespace

double cpus_of_quota(std::string_view text) {
  const auto space = text.find(' ');
  const auto quota = number_at(text);
  if (!quota || space == std::string_view::npos)
    return 0;
  const auto period = number_at(text.substr(space + 1));
  return period && *period > 0 ? static_cast<double>(*quota) / static_cast<double>(*period) : 0;
}

GroupLimits limits_of_groups(const std::string& process, const std::string& root) {
  GroupLimits limits;
  const Folders folders(process, root);
  for (const std::string& folder : folders.of("")) read_version_2(folder, limits);
  for (const std::string& folder : folders.of("cpu")) read_cpus_of_version_1(folder, limits);
  for (const std::string& folder : folders.of("pids")) read_threads(folder, limits);
  bool own = true;
  for (const std::string& folder : folders.of("memory")) {
    // Without memory.use_hierarchy, a parent group does not count its children's memory.
    if (!own && trimmed(text_of(folder + "/memory.use_hierarchy")) == "0")
      break;
    own = false;
    read_memory_of_version_1(folder, limits);
  }
  return limits;
}

GroupThrottling throttling_of_groups(const std::string& process, const std::string& root) {
  GroupThrottling most;
  const Folders folders(process, root);
  for (const char* controller : {"", "cpu"})
    for (const std::string& folder : folders.of(controller)) {
      const std::string statistics = text_of(folder + "/cpu.stat");
      if (const auto throttled = number_of(statistics, "nr_throttled"); throttled > most.throttled)
        most = {number_of(statistics, "nr_periods"), throttled};
    }
  return most;
}

}  // namespace trireme
