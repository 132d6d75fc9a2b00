// SPDX-License-Identifier: Apache-2.0
// An HDF5 file may lead its reader elsewhere: external links open other files under any path,
// external storage reads and writes them, virtual datasets show parts of them. A file that someone
// sent, or damaged, could so make a run write into a file that is not its own, or wait for a FIFO.
//
// An object with two names, by a soft or a second hard link, gets what was meant for another.
//
// Every file that is opened here is looked through first (file.hpp calls this). Allowed is what
// trireme writes itself: objects with one name, and virtual datasets over files beside this one.
#pragma once

#include <string>

#include <hdf5.h>

namespace trireme::h5 {

/// "" when no object of the open file leads elsewhere, else the first that does, as in
/// "/steps is a link to the file /etc/passwd". Opens nothing but objects of this file.
/// Throws DamagedError where it contradicts itself, StorageError where the system refuses.
std::string leads_outside(hid_t file);

}  // namespace trireme::h5
