// SPDX-License-Identifier: Apache-2.0
#include "doctor/host_facts.hpp"

#include <algorithm>
#include <set>
#include <sstream>

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/kernel_text.hpp"
#include "base/text.hpp"
#include "device/energy.hpp"

namespace trireme::doctor {
std::string size_text(std::int64_t bytes) {
  return bytes == unlimited ? "unlimited" : bytes_text(static_cast<double>(bytes));
}

std::string processor_name(std::string_view cpuinfo) {
  return value_of(cpuinfo, "model name");
}

std::vector<std::string> processor_features(std::string_view cpuinfo) {
  std::string all = value_of(cpuinfo, "flags");
  if (all.empty())
    all = value_of(cpuinfo, "Features");  // aarch64
  std::istringstream words(all);
  std::set<std::string> has;
  for (std::string word; words >> word;) has.insert(word);
  std::vector<std::string> found;
  for (const char* feature : {"avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "bf16", "sve"})
    if (has.contains(feature))
      found.emplace_back(feature);
  return found;
}

std::string chosen_word(std::string_view text) {
  const auto begin = text.find('['), end = text.find(']');
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin)
    return {};
  return std::string(text.substr(begin + 1, end - begin - 1));
}

std::int64_t reserved_huge_bytes(std::string_view meminfo) {
  return number_at(value_of(meminfo, "HugePages_Total")).value_or(0) *
         bytes_of(meminfo, "Hugepagesize");
}

std::int64_t usable_bytes(const HostFacts& facts) {
  return facts.memory_limit_free_bytes == unlimited
             ? facts.available_bytes
             : std::min(facts.available_bytes, facts.memory_limit_free_bytes);
}

HostFacts facts_of_this_host(const std::string& host, const std::string& gpu) {
  HostFacts facts;
  facts.host = host;
  utsname system{};
  if (uname(&system) == 0)
    facts.kernel = std::string(system.sysname) + " " + system.release;
  const std::string cpuinfo = text_of("/proc/cpuinfo"), meminfo = text_of("/proc/meminfo");
  facts.processor = processor_name(cpuinfo);
  facts.features = processor_features(cpuinfo);
  facts.governor = trimmed(text_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"));
  facts.cpus = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  facts.memory_bytes = bytes_of(meminfo, "MemTotal");
  facts.available_bytes = bytes_of(meminfo, "MemAvailable");
  const GroupLimits groups = limits_of_groups();
  facts.cpu_limit = groups.cpus;
  facts.memory_limit_bytes = groups.memory_bytes;
  facts.memory_limit_free_bytes = groups.memory_free_bytes;
  facts.huge_pages = chosen_word(text_of("/sys/kernel/mm/transparent_hugepage/enabled"));
  facts.shared_huge_pages =
      chosen_word(text_of("/sys/kernel/mm/transparent_hugepage/shmem_enabled"));
  facts.reserved_huge_bytes = reserved_huge_bytes(meminfo);
  facts.locked_bytes = ulimit_of(RLIMIT_MEMLOCK).value_or(unlimited);
  facts.open_files = ulimit_of(RLIMIT_NOFILE).value_or(unlimited);
  struct statvfs shm {};
  if (statvfs("/dev/shm", &shm) == 0) {
    facts.shm_bytes = static_cast<std::int64_t>(shm.f_blocks * shm.f_frsize);
    facts.shm_free_bytes = static_cast<std::int64_t>(shm.f_bavail * shm.f_frsize);
  }
  const device::EnergyMeter meter(true, gpu);
  facts.energy = meter.cpu_text() + (gpu.empty() ? "" : "; GPU: " + meter.gpu_text());
  return facts;
}

}  // namespace trireme::doctor
