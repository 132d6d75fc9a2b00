// SPDX-License-Identifier: Apache-2.0
// Room on the disk ahead of writing. HDF5 writes a group of changes piece by piece; a disk that is
// full in the middle leaves a file that contradicts itself. So room is taken first, and a full disk
// is found while the file is still as it was.
#pragma once

#include <cstdint>
#include <string>

#include "h5/file.hpp"

namespace trireme::h5 {

/// Of one open file that grows.
class Room {
 public:
  explicit Room(std::string path) : path_(std::move(path)) {}

  /// Afterwards `bytes` can be added after `end` (end_of()), whatever else fills the disk. The
  /// file's size stays as it is. Where a file system cannot do that, its free space is looked
  /// at. Throws StorageError when there is no room.
  void ensure(std::int64_t end, std::int64_t bytes);
  /// Gives back what was not used, once the file is closed. Never fails: it costs disk only.
  void release() const noexcept;

 private:
  std::string path_;
  std::int64_t until_ = 0;  ///< there is room up to here
};

/// Bytes from the begin of the file to after all that HDF5 has or will put into it.
std::int64_t end_of(const File& file);

}  // namespace trireme::h5
