// SPDX-License-Identifier: Apache-2.0
// Creates, opens and closes HDF5 files.
//
// 1. Files have the default format bounds, never "latest". A file is written completely under a
//    temporary name, with our own driver (file.cpp), then renamed, and from then on only read.
// 2. HDF5's own file locks are off, so that file systems without locks work.
// 3. Before a file is opened, it must be a regular file, so that a FIFO cannot block the run. HDF5
//    files can refer to other files through external links, external storage and virtual datasets.
//    A malicious or damaged file could thus make a run read any path. After opening, all such
//    references are refused, except virtual datasets over files in the same directory, which
//    trireme itself writes.
// 4. close() hands all data to the operating system; files::sync_file() syncs it to disk.
#pragma once

#include <string>

#include "h5/handle.hpp"

namespace trireme::h5 {

/// Throws StorageError if the file exists or cannot be created.
File create_file(const std::string& path);
/// Opens for reading. Throws DamagedError if the file is not HDF5, damaged, or refers to files
/// elsewhere; otherwise StorageError.
File open_file(const std::string& path);
/// Closes a file from create_file(). Throws StorageError if writing failed, unlike the destructor.
void close(File file);

/// Opens the group, and creates it if it is missing. `path` may have several components.
Group open_group(hid_t parent, const std::string& path);
bool exists(hid_t parent, const std::string& path);

}  // namespace trireme::h5
