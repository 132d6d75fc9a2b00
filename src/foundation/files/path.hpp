// SPDX-License-Identifier: Apache-2.0
// Checks what is at a path, and renames and removes files durably (the change survives a power
// loss). Errors are StorageErrors with the call, the path and the system's message.
#pragma once

#include <string>

namespace trireme::files {

/// Whether `path` exists; a dangling link does. Throws StorageError if the system cannot tell.
bool exists(const std::string& path);

/// Whether an errno value means that the path is wrong, which the user can fix: no such file, wrong
/// file type, permission denied, name too long, symbolic link loop. All other errors (out of
/// memory, too many open files, a failing disk or server) are failures of the machine.
bool is_about_the_path(int error);
/// Throws StorageError for `call` ("open PATH") unless is_about_the_path(error).
void expect_about_the_path(int error, const std::string& call);

/// "" for a regular file, else the type of the file: "a directory", "a FIFO", "a socket", "a
/// device". `mode` is st_mode.
const char* other_than_file(unsigned mode);
/// Throws UserError with the reason unless `path`, which the user has given, is a regular file that
/// this process may read.
void expect_input_file(const std::string& path);
/// Throws StorageError unless `mode` (st_mode) is that of a regular file.
void expect_regular(const std::string& path, unsigned mode);
/// Throws StorageError if `path` exists and is not a regular file. Call it before a library opens
/// the path for writing: opening a FIFO would block until it has a reader.
void expect_writable_place(const std::string& path);

/// Creates the directory and its missing parents, as `mkdir -p` does. The new directory entries are
/// on disk when this returns.
void make_directories(const std::string& path);
/// Calls rename(2), which replaces an existing file at `to`.
void rename(const std::string& from, const std::string& to);

/// fsync, if the file system supports it. A directory is skipped if this process may not list it.
void sync_file(const std::string& path);
void sync_directory(const std::string& path);

}  // namespace trireme::files
