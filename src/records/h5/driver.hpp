// SPDX-License-Identifier: Apache-2.0
// How HDF5 reaches its files here: a driver (VFD) of our own, because its default one crashes later
// when a close fails (1.10.8 loses the file and keeps its id, which MPI_Finalize then closes again).
//
// 1. After a write failed nothing more is written: every later flush() fails, and closing drops the
//    file without a message.
// 2. Writes go to the file at once: files are made in one go, under a name that nobody opens yet.
// 3. The file is an ordinary HDF5 file, which every driver reads.
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
