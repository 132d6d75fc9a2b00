// SPDX-License-Identifier: Apache-2.0
// The HDF5 file driver (VFD) that is used for all files, because the default driver crashes later
// when a close fails (1.10.8 loses the file and keeps its id, which MPI_Finalize then closes
// again).
//
// 1. After a failed write nothing more is written: every later flush() fails, and closing discards
//    the file without a message.
// 2. Writes go to the file immediately: files are written in one go under a temporary name.
// 3. The result is an ordinary HDF5 file that every driver can read.
#pragma once

#include <string>

#include "h5/handle.hpp"

namespace trireme::h5 {

/// Properties for H5Fcreate and H5Fopen.
Properties file_access();

/// As H5Fclose, which fails no more because of a write; what went wrong with writing, or "".
std::string close_with_words(hid_t file);

/// What went wrong with writing it, "" while all is well.
std::string write_problem(hid_t file);

}  // namespace trireme::h5
