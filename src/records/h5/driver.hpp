// SPDX-License-Identifier: Apache-2.0
// How HDF5 reaches its files here: a driver (VFD) of our own, because its default one leaves a file
// that contradicts itself when a write fails, and crashes later when a close fails (1.10.8 loses
// the file and keeps its id, which MPI_Finalize then closes again).
//
// 1. After a write failed nothing more is written: every later flush() fails, and closing drops the
//    file without a message.
// 2. With a journal, what HDF5 changes below the end that the file had at the last flush waits in
//    memory, page by page, and a flush replaces all of it or nothing (journal.hpp). What lies after
//    that end is written at once: no reader uses it. So a full disk, a failing one, kill -9 or a
//    power cut costs what waited, never the file. A flush waits for the disk twice.
// 3. Without a journal, writes go to the file at once: for files that are made in one go under a
//    name that is not opened yet.
// 4. A rehearsed file is opened for reading only: all that HDF5 writes stays in memory.
// 5. A journaled file that is open for writing holds a shared flock, as readers of HDF5 do, so that
//    another program of HDF5 may read it and cannot open it for writing; one that another program
//    has open for writing is refused.
// 6. The file is an ordinary HDF5 file, which every driver reads.
#pragma once

#include <cstdint>
#include <string>

#include "h5/handle.hpp"

namespace trireme::h5 {

enum class Writes : std::uint8_t { direct, journaled, rehearsed };

/// Properties for H5Fcreate and H5Fopen. A journaled or rehearsed file that is opened shows what
/// its journal still holds; a journaled one that is opened for writing gets it first.
Properties file_access(Writes how);

/// From now on nothing more of it is written (1); closing it then cannot fail.
void give_up(hid_t file) noexcept;

/// As H5Fclose, which fails no more because of a write; what went wrong with writing, or "".
std::string close_with_words(hid_t file);

/// What went wrong with writing it, "" while all is well.
std::string write_problem(hid_t file);

}  // namespace trireme::h5
