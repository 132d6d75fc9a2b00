// SPDX-License-Identifier: Apache-2.0
// What the kernel reports of one host: processor, memory, limits of this process, directories.
// Nothing is measured here. What a kernel or a container hides is left at "not known"
// (empty, or 0), since a missing fact must not end an examination.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/control_groups.hpp"

namespace trireme::doctor {

struct HostFacts {
  std::string host;
  std::string kernel;                 ///< "Linux 6.1.0"
  std::string processor;              ///< "AMD EPYC 9354"
  std::vector<std::string> features;  ///< those that choose a kernel of ours, in the kernel's words
  std::string governor;               ///< of the first CPU's clock: "performance", "powersave"
  int cpus = 0;                       ///< online
  double cpu_limit = 0;               ///< of control groups, in CPUs; 0: none
  std::int64_t memory_bytes = 0, available_bytes = 0;
  std::int64_t memory_limit_bytes = unlimited;       ///< of control groups (control_groups.hpp)
  std::int64_t memory_limit_free_bytes = unlimited;  ///< that they have left
  std::string huge_pages;                            ///< transparent ones: always, madvise, never
  std::string shared_huge_pages;         ///< of memory that ranks share: never, advise, always, …
  std::int64_t reserved_huge_bytes = 0;  ///< HugePages_Total, which nothing here uses
  std::int64_t locked_bytes = 0;         ///< limit of locked memory
  std::int64_t open_files = 0;           ///< limit of this process
  std::int64_t shm_bytes = 0, shm_free_bytes = 0;  ///< of /dev/shm

  bool operator==(const HostFacts&) const = default;
  auto fields() {
    return std::tie(host, kernel, processor, features, governor, cpus, cpu_limit, memory_bytes,
                    available_bytes, memory_limit_bytes, memory_limit_free_bytes, huge_pages,
                    shared_huge_pages, reserved_huge_bytes, locked_bytes, open_files, shm_bytes,
                    shm_free_bytes);
  }
};

HostFacts facts_of_this_host(const std::string& host);

/// What processes can still take: what is available, or less where control groups have less left.
std::int64_t usable_bytes(const HostFacts& facts);

/// As JSON.
std::string json_text(const HostFacts& facts);

/// "8 MiB" or "unlimited".
std::string size_text(std::int64_t bytes);

/// "model name" of /proc/cpuinfo's text; empty where the processor has none.
std::string processor_name(std::string_view cpuinfo);
/// Of the features of /proc/cpuinfo's text those that choose a kernel of ours, in a fixed order.
std::vector<std::string> processor_features(std::string_view cpuinfo);
/// The word in brackets of "always [madvise] never".
std::string chosen_word(std::string_view text);
/// Bytes of a line "MemTotal:  24000000 kB" of /proc/meminfo's text; 0 where it is missing.
std::int64_t meminfo_bytes(std::string_view meminfo, std::string_view key);
/// HugePages_Total times Hugepagesize of that text.
std::int64_t reserved_huge_bytes(std::string_view meminfo);

}  // namespace trireme::doctor
