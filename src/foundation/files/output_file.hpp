// SPDX-License-Identifier: Apache-2.0
// Writes files. Errors are StorageErrors with the call, the path and the system's message.
//
//   write_file       overwrites the file in place: for text that a reader can do without
//   replace_file     replaces the file completely or not at all, through PATH.tmp: if only one
//                    process writes at a time
//   StagedFile       the same for long files, and if several processes may write the same one
//   new_file         never overwrites a file
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <unistd.h>

#include "files/descriptor.hpp"

namespace trireme::files {

/// Syncs the file to disk and closes it.
void finish(Descriptor& file);

/// Writes a file with the content `text`; it is on disk when this returns.
void write_file(const std::string& path, std::string_view text);
/// The same, but the previous file remains until the new one is complete.
void replace_file(const std::string& path, std::string_view text);

/// A file that appears at its path only when it is complete: commit() syncs it, renames it and
/// syncs the directory. Until then a previous file remains unchanged. Without commit(), it is
/// deleted. It is locked until then, so remove_abandoned() finds files of killed processes.
class StagedFile {
 public:
  explicit StagedFile(std::string path);
  ~StagedFile();
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;

  /// Temporary path: `path`.HOST-PID.part, with a suffix if another process uses that name.
  [[nodiscard]] static std::string place(const std::string& path, const std::string& suffix = "");
  [[nodiscard]] const Descriptor& file() const { return file_; }
  void commit();

 private:
  std::string path_;
  Descriptor file_;
  bool committed_ = false;
};

/// Removes the staged files of these targets in `directory` that no process has locked, because
/// their process was killed. On a file system without locks nothing is removed.
void remove_abandoned(const std::string& directory, const std::set<std::string>& names);

/// Writes a complete file with the content `text`, as a StagedFile.
void write_staged(const std::string& path, std::string_view text);

/// Creates a new file. Throws StorageError if it exists.
Descriptor new_file(const std::string& path);
/// Calls `write`, which completes the new file at `path`. Removes the file if that throws, so that
/// the command can be repeated.
template <class Write>
void complete_new_file(const std::string& path, Write&& write) try {
  std::forward<Write>(write)();
} catch (...) {
  ::unlink(path.c_str());
  throw;
}
/// Throws UserError if the file exists or cannot be created. Call it before long computations.
void expect_new_file(const std::string& path);
/// Throws UserError if no file can be created in the directory of `path`.
void expect_place_for(const std::string& path);
/// Writes a new file with the content `text`, or none. Throws UserError if it exists.
void write_new_file(const std::string& path, std::string_view text);

}  // namespace trireme::files
