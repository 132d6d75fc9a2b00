// SPDX-License-Identifier: Apache-2.0
// Short measurements of a machine, each of about a second: memory, and the file system that
// checkpoints go to. Matrix products and collectives have benches of their own
// (bench/ceiling.hpp, bench/collectives.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/control/world.hpp"

namespace trireme::doctor {

/// Bytes per second of a = b + s * c over arrays of 64 MiB (or a share of what memory is free) on
/// `threads` threads, two reads and a write of each element counted; every rank's, in their order.
/// All ranks measure at the same time; each takes its best of several repetitions, as McCalpin's
/// STREAM does. Collective.
std::vector<double> memory_bandwidth(comm::World& world, int threads);

struct FileSystem {
  std::string host;
  std::string directory;
  std::string type;  ///< "ext4", or the kernel's number of it
  std::int64_t free_bytes = 0;
  double write_bytes_per_s = 0;  ///< of one file, until it is on the disk
  double sync_seconds = 0;       ///< median of a 4 KiB write that is synchronized
};

/// Writes up to 256 MiB, for at most about five seconds, into a file without a name in `directory`:
/// nothing stays there. Throws UserError where the directory is not there or cannot be written,
/// StorageError where the system fails.
FileSystem measure_file_system(const std::string& host, const std::string& directory);

/// Throws on all ranks, as measure_file_system() does, where the first rank of any host cannot make a
/// file in `directory`. Collective.
void expect_writable(comm::World& world, const std::string& directory);

/// Of one rank of each host, at the same time, into `measured` of every rank. Collective. Throws on
/// a rank that failed, after all have those of the others.
void measure_file_systems(comm::World& world,
                          const std::string& directory,
                          std::vector<FileSystem>& measured);

}  // namespace trireme::doctor
