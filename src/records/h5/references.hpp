// SPDX-License-Identifier: Apache-2.0
// An HDF5 file can refer to other files: external links open other files under any path, external
// storage reads and writes them, virtual datasets show parts of them. So a file from someone else,
// or a damaged one, could make a run write into a file that is not its own, or wait for a FIFO.
//
// An object with two names (a soft or a second hard link) would receive data meant for another one.
//
// file.hpp calls this for every file that it opens. Only what trireme writes itself is allowed:
// objects with one name, and virtual datasets over files in the same directory.
#pragma once

#include <string>

#include <hdf5.h>

namespace trireme::h5 {

/// "" when no object of the open file leads elsewhere, else the first that does, as in
/// "/steps is a link to the file /etc/passwd". Opens nothing but objects of this file.
/// Throws DamagedError where it contradicts itself, StorageError where the system refuses.
std::string leads_outside(hid_t file);

}  // namespace trireme::h5
