// SPDX-License-Identifier: Apache-2.0
// Writes bulk data into a file that HDF5 laid out and closed, at Dataset::file_offset(). This does
// not use HDF5 and so does not take its lock: run.h5 can be written while gigabytes of a checkpoint
// are.
//
// 1. Whole pages from page-aligned memory go directly to the disk (O_DIRECT), which takes no core
//    time. Data that is not aligned, and all data on a file system without O_DIRECT, goes through
//    the page cache, and the kernel is asked to start writing it back at once.
// 2. write() may run in one thread while another reads other pages.
// 3. Failures are StorageErrors with the path and the system's message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "files/descriptor.hpp"

namespace trireme::h5 {

class RawFile {
 public:
  /// Offset, address and size must be multiples of this for O_DIRECT: no file system requires more.
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
  /// Returns how many of `bytes` it wrote with O_DIRECT.
  std::size_t write_direct(std::int64_t offset, std::span<const std::byte> bytes);

  files::Descriptor file_;
  int direct_ = -1;  ///< the same file, opened with O_DIRECT; -1: the file system cannot
};

}  // namespace trireme::h5
