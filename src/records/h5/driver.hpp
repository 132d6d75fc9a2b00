// SPDX-License-Identifier: Apache-2.0
// The HDF5 file driver (VFD) for all files. The library's default driver reports a failed write or
// close to HDF5, which crashes in MPI_Finalize when a file cannot be closed, also one that was only
// read (1.10.8 loses the file and keeps its id).
//
// 1. After a failed write nothing more is written, and HDF5 learns only of the first failure, or of
//    none if the file is being closed: closing it always succeeds.
// 2. Writes go to the file immediately.
// 3. The result is an ordinary HDF5 file, which every driver can read.
#pragma once

#include <memory>
#include <string>

#include "files/descriptor.hpp"

#include "h5/handle.hpp"

namespace trireme::h5 {

/// A new HDF5 file in `file`, which is empty and may be read and written.
File create_in(files::Descriptor file);

/// Properties for H5Fopen, for reading only.
Properties file_access();

/// Why a write of a file of create_in() failed; "" while all is well. Outlives the file.
std::shared_ptr<const std::string> write_problem(const File& file);

}  // namespace trireme::h5
