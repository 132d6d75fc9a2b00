// SPDX-License-Identifier: Apache-2.0
// Examines what is at a path, and renames and removes files so that the change survives a power
// cut. Failures are StorageErrors with the call, the path and the system's message.
#pragma once

#include <string>

namespace trireme::files {

/// Whether anything is at `path`, be it a link that leads nowhere. Throws StorageError where the
/// system does not tell.
bool exists(const std::string& path);

/// Whether a path cannot be used by the user's mistake: no such name, another kind of file, not
/// allowed, too long, links in a loop. `error` is an errno value. All else (no memory, too many
/// open files, a disk or a server that fails) is the machine's fault.
bool is_about_the_path(int error);
/// Throws StorageError for `call` ("open PATH") where the error is the machine's.
void expect_about_the_path(int error, const std::string& call);

/// "" for a regular file, else what is in its place: "a directory", "a FIFO", "a socket", "a
/// device". `mode` is st_mode.
const char* other_than_file(unsigned mode);
/// Throws UserError, with the reason, unless a regular file that this process may read is at
/// `path`, which the user has given.
void expect_input_file(const std::string& path);
/// Throws StorageError for what is not a regular file.
void expect_regular(const std::string& path, unsigned mode);
/// Throws StorageError when something other than a regular file is at `path`: before a library
/// opens it for writing, and would wait for the reader of a FIFO.
void expect_writable_place(const std::string& path);

/// Makes what is missing of the path, as `mkdir -p` does; the new names are on the disk when this
/// returns.
void make_directories(const std::string& path);
/// rename(2): what is at `to` is replaced.
void rename(const std::string& from, const std::string& to);

/// fsync, where the file system can; a directory also only where this process may list it.
void sync_file(const std::string& path);
void sync_directory(const std::string& path);

}  // namespace trireme::files
