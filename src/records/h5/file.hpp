// SPDX-License-Identifier: Apache-2.0
// Files: create, open, close.
//
// 1. Files have the default format bounds, never "latest". They are made in one go under a
//    temporary name, with our own driver (file.cpp), and only read once they have their own.
// 2. HDF5's own file locks are off, so that file systems without locks work.
// 3. What is opened is examined first: a regular file, opened without waiting for a writer. An HDF5
//    file can refer to others: external links open files under any path, external storage reads
//    them, virtual datasets show parts of them. So a file from someone else, or a damaged one,
//    could make a run wait for a FIFO. Only virtual datasets over files in the same directory are
//    allowed, which trireme writes itself.
// 4. close() hands everything to the operating system; files::sync_file() hands it to the disk.
#pragma once

#include <string>

#include "h5/handle.hpp"

namespace trireme::h5 {

/// Throws StorageError when the file exists already or cannot be made.
File create_file(const std::string& path);
/// For reading. Throws DamagedError when it is not an HDF5 file, damaged, or leads outside, else
/// StorageError.
File open_file(const std::string& path);
/// Of a file that was created. Throws StorageError when it could not be written; the destructor
/// does not tell.
void close(File file);

/// Opens the group, made first when it is not there. `path` may have several parts.
Group open_group(hid_t parent, const std::string& path);
bool exists(hid_t parent, const std::string& path);

}  // namespace trireme::h5
