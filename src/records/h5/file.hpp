// SPDX-License-Identifier: Apache-2.0
// Files: create, open, flush, close.
//
// 1. Files use our own driver (driver.hpp) and the default format bounds, never "latest". They are
//    made in one go under a temporary name, and only read once they have their own.
// 2. HDF5's own file locks are off, so that file systems without locks work.
// 3. What is opened is examined first: a regular file, opened without waiting for a writer, that
//    leads nowhere outside of its directory (references.hpp).
// 4. close() hands everything to the operating system; files::sync_file() hands it to the disk.
#pragma once

#include <cstdint>
#include <string>

#include "h5/handle.hpp"

namespace trireme::h5 {

enum class Access : std::uint8_t { read, read_write };

/// Throws StorageError when the file exists already or cannot be made.
File create_file(const std::string& path);
/// Throws DamagedError when it is not an HDF5 file, damaged, or leads outside, else StorageError.
File open_file(const std::string& path, Access access);
void flush(const File& file);
/// As the destructor, but a failure is a StorageError.
void close(File file);
/// For a file that could not be written: as the destructor, without a message about what is lost.
void abandon(File file) noexcept;

/// Opens the group, made first when it is not there. `path` may have several parts.
Group open_group(hid_t parent, const std::string& path);
bool exists(hid_t parent, const std::string& path);

}  // namespace trireme::h5
