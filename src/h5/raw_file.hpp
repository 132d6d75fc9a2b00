// SPDX-License-Identifier: Apache-2.0
// Bulk data into a file that HDF5 laid out and closed: what lies at Dataset::file_offset(), written
// without HDF5 and so without a turn at it. That keeps the record of a run going while gigabytes of
// a checkpoint are written beside it.
//
// 1. The kernel is told to begin with each piece at once, so that the disk works while the next
// piece is prepared, and sync() waits for the rest only.
// 2. Failures are StorageErrors with the path and the system's words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "h5/file.hpp"

namespace trireme::h5 {

class RawFile {
 public:
  /// The file exists.
  explicit RawFile(std::string path, Access access = Access::read_write);
  ~RawFile();
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;

  void write(std::int64_t offset, std::span<const std::byte> bytes);
  /// fsync. Everything before it is on the disk afterwards.
  void sync();
  [[nodiscard]] std::int64_t size() const;
  /// Fills `bytes` from `offset` on; the file must reach so far.
  void read(std::int64_t offset, std::span<std::byte> bytes) const;

 private:
  [[noreturn]] void fail(const char* what) const;

  std::string path_;
  int file_ = -1;
};

}  // namespace trireme::h5
