// SPDX-License-Identifier: Apache-2.0
// Files: create, open, flush, close, probe.
//
// 1. Files use our own driver (driver.hpp) and the default format bounds, never "latest": a
//    journaled file whose writer was killed opens again as it was at its last flush.
// 2. HDF5's own file locks are off, so that a run can be read while it is being written and so that
//    file systems without locks work; the driver takes its own. Who may write is settled above (record's run directory).
// 3. What is opened is examined first: a regular file, opened without waiting for a writer, that
//    leads nowhere outside of its directory (references.hpp).
// 4. flush() hands everything to the operating system and survives kill -9; files::sync_file() hands
//    it to the disk and survives a power cut.
#pragma once

#include <cstdint>
#include <string>

#include "h5/driver.hpp"
#include "h5/handle.hpp"

namespace trireme::h5 {

enum class Access : std::uint8_t { read, read_write };

/// Throws StorageError when the file exists already or cannot be made.
File create_file(const std::string& path, Writes how = Writes::direct);
/// Throws DamagedError when it is no HDF5 file, damaged, or leads outside, else StorageError.
File open_file(const std::string& path, Access access, Writes how = Writes::direct);
void flush(const File& file);
/// As the destructor, but a failure is a StorageError.
void close(File file);
/// For a file that could not be written: closes it without a message about what is lost. Its
/// datasets must have been abandoned before.
void abandon(File file) noexcept;

enum class Probe : std::uint8_t { whole, absent, unreadable, not_hdf5, damaged };
/// Looks at a file without changing it: damaged means that it starts like HDF5 and does not open,
/// or leads outside; unreadable that the system refused, or that it is no regular file. `why` gets
/// a text that names the reason.
Probe probe(const std::string& path, std::string* why = nullptr, Writes how = Writes::direct);

/// Opens the group, made first when it is not there. `path` may have several parts.
Group open_group(hid_t parent, const std::string& path);
bool exists(hid_t parent, const std::string& path);

}  // namespace trireme::h5
