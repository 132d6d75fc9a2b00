// SPDX-License-Identifier: Apache-2.0
// Short measurements of a machine, each about a second: memory, and the file system for
// checkpoints. bench/ceiling.hpp measures matrix products, and bench/collectives.hpp collectives.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "comm/control/world.hpp"

namespace trireme::doctor {

/// bench::measure_memory() with operands of 64 MiB (or a share of the free memory), by rank. All
/// ranks measure at the same time. Requires: OpenMP uses `threads` threads. Collective.
std::vector<double> memory_bandwidth(comm::World& world, int threads);

struct FileSystem {
  std::string host;
  std::string directory;
  std::string type;  ///< "ext4", or the kernel's number of the type
  std::int64_t free_bytes = 0;
  double write_bytes_per_s = 0;  ///< of one file, including the synchronization
  double sync_seconds = 0;       ///< median of a 4 KiB write that is synchronized

  auto fields() {
    return std::tie(host, directory, type, free_bytes, write_bytes_per_s, sync_seconds);
  }
};

/// Writes up to 256 MiB, for at most about five seconds, into a file without a name in `directory`,
/// which disappears afterwards. Throws UserError if the directory does not exist or cannot be
/// written, StorageError if the system fails.
FileSystem measure_file_system(const std::string& host, const std::string& directory);

/// Throws on all ranks, as measure_file_system() does, if the first rank of any host cannot create
/// a file in `directory`. Collective.
void expect_writable(comm::World& world, const std::string& directory);

/// Measures on one rank of each host at the same time; every rank receives the results in
/// `measured`. Collective. Throws on a rank that failed, after all ranks have the results of the
/// others.
void measure_file_systems(comm::World& world,
                          const std::string& directory,
                          std::vector<FileSystem>& measured);

}  // namespace trireme::doctor
