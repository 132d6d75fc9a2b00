// SPDX-License-Identifier: Apache-2.0
#include "doctor/measurements.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <exception>
#include <optional>
#include <span>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/quantile.hpp"
#include "device/recorder.hpp"
#include "files/descriptor.hpp"
#include "files/path.hpp"

#include "comm/control/together.hpp"

#include "bench/ceiling.hpp"

namespace trireme::doctor {
namespace {

[[noreturn]] void fail(const char* call, const std::string& directory, int error) {
  const std::string text = fmt::format("{} in {}", call, directory);
  files::expect_about_the_path(error, text);
  throw UserError(fmt::format("{}: {}", text, std::strerror(error)));
}

/// A file without a name, which disappears when it is closed.
files::Descriptor unnamed_file(const std::string& directory) {
  if (::access((directory + "/.").c_str(), W_OK | X_OK) != 0)  // of a file: not a directory
    fail("create a file", directory, errno);
  files::Descriptor file(fmt::format("{}/.trireme-doctor-{}", directory, ::getpid()),
                         O_RDWR | O_CREAT | O_EXCL);
  ::unlink(file.path().c_str());
  return file;
}

/// Source of the numbers: statfs(2) and the file systems' own headers.
std::string type_of(const std::string& directory) {
  struct statfs info {};
  if (statfs(directory.c_str(), &info) != 0)
    return "not known";
  static constexpr std::pair<std::uint64_t, const char*> known[] = {
      {0xEF53, "ext4"},        {0x58465342, "xfs"},  {0x9123683E, "btrfs"},  {0x01021994, "tmpfs"},
      {0x794C7630, "overlay"}, {0x6969, "nfs"},      {0x0BD00BD0, "lustre"}, {0x47504653, "gpfs"},
      {0x19830326, "beegfs"},  {0x00C36400, "ceph"}, {0x65735546, "fuse"},   {0x2FC12FC1, "zfs"}};
  const auto number = static_cast<std::uint64_t>(info.f_type) & 0xFFFFFFFFU;
  for (const auto& [magic, name] : known)
    if (magic == number)
      return name;
  return fmt::format("type {:#x}", number);
}

}  // namespace

std::vector<double> memory_bandwidth(comm::World& world, int threads) {
  constexpr std::int64_t most = 64 << 20;
  const std::int64_t available =
      static_cast<std::int64_t>(sysconf(_SC_AVPHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  const std::int64_t bytes =
      std::clamp<std::int64_t>(available / (std::int64_t{8} * world.local_size()), 1 << 20, most);
  double rate = 0;
  world.barrier();
  comm::together(world, [&] {
    const auto device = device::make_cpu_device(threads);
    const auto alone = comm::make_self_world();
    rate = bench::measure_memory(static_cast<std::size_t>(bytes), *device, *alone);
  });
  return world.gather_all({&rate, 1});
}

FileSystem measure_file_system(const std::string& host, const std::string& directory) {
  constexpr std::int64_t block = 8 << 20, most = 256 << 20, small = 4096;
  constexpr double limit_s = 5;
  constexpr int syncs = 9;
  FileSystem result{.host = host, .directory = directory, .type = {}};
  const files::Descriptor file = unnamed_file(directory);
  result.type = type_of(directory);
  struct statvfs space {};
  if (statvfs(directory.c_str(), &space) == 0)
    result.free_bytes = static_cast<std::int64_t>(space.f_bavail * space.f_frsize);
  const std::int64_t bytes = std::min(most, result.free_bytes / 4 / block * block);

  const std::vector data(block, std::byte{0x5a});
  auto start = device::steady_seconds();
  std::int64_t written = 0;
  while (written < bytes && device::steady_seconds() - start < limit_s) {
    file.write_at(written, data);
    written += block;
  }
  file.sync();
  if (written > 0)
    result.write_bytes_per_s = static_cast<double>(written) / (device::steady_seconds() - start);

  const auto little = std::span(data).first(small);
  std::vector<double> times;
  const auto begin = device::steady_seconds();
  for (int i = 0; i < syncs && (i == 0 || device::steady_seconds() - begin < limit_s); ++i) {
    start = device::steady_seconds();
    file.write_at(i * small, little);
    file.sync();
    times.push_back(device::steady_seconds() - start);
  }
  result.sync_seconds = median(times);
  return result;
}

void expect_writable(comm::World& world, const std::string& directory) {
  comm::together(world, [&] {
    if (world.local_rank() == 0)
      unnamed_file(directory);
  });
}

void measure_file_systems(comm::World& world,
                          const std::string& directory,
                          std::vector<FileSystem>& measured) {
  std::optional<FileSystem> mine;
  std::exception_ptr failed;
  try {
    const comm::World::AtWork work(world);
    if (world.local_rank() == 0)
      mine = measure_file_system(world.host(), directory);
  } catch (const std::exception&) {
    failed = std::current_exception();
  }
  for (auto& one : comm::gather_packed(world, mine))
    if (one)
      measured.push_back(*std::move(one));
  if (failed)
    std::rethrow_exception(failed);
}

}  // namespace trireme::doctor
