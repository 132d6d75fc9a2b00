// SPDX-License-Identifier: Apache-2.0
// Bulk data into a file that HDF5 laid out and closed: what lies at Dataset::file_offset(), written
// without HDF5 and so without its lock. So a run's record is written further while gigabytes of
// a checkpoint are written beside it.
//
// 1. Whole pages from page-aligned memory go from there to the disk (O_DIRECT): writing costs no
//    core time, which is scarce while a run computes. What is not aligned, and
//    everything on a file system that cannot do this, goes through the kernel's cache, and the
//    kernel is asked to begin with it at once.
// 2. write() may run in one thread while another reads other pages.
// 3. Failures are StorageErrors with the path and the system's message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "files/descriptor.hpp"

namespace trireme::h5 {

/// All of `count` bytes at `offset`; errno or 0. read_all() gives zeros after the end of the file.
int write_all(int file, const void* from, std::size_t count, std::int64_t offset);
int read_all(int file, void* to, std::size_t count, std::int64_t offset);

class RawFile {
 public:
  /// What offset, address and size must be multiples of to go around the cache: no page or sector
  /// that file systems ask for is larger.
  static constexpr std::size_t page_bytes = 4096;

  /// The file exists.
  explicit RawFile(const std::string& path);
  ~RawFile();
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;

  void write(std::int64_t offset, std::span<const std::byte> bytes);
  /// fsync. Everything before it is on the disk afterwards.
  void sync() const { file_.sync(); }
  [[nodiscard]] std::int64_t size() const { return file_.size(); }
  /// Fills `bytes` from `offset` on; the file must reach so far.
  void read(std::int64_t offset, std::span<std::byte> bytes) const;

 private:
  /// How many of `bytes` it wrote around the cache.
  std::size_t write_direct(std::int64_t offset, std::span<const std::byte> bytes);

  files::Descriptor file_;
  int direct_ = -1;  ///< the same file, opened with O_DIRECT; -1: the file system cannot
};

}  // namespace trireme::h5
