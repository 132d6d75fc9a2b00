// SPDX-License-Identifier: Apache-2.0
// Writes files. Failures are StorageErrors with the call, the path and the system's message.
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

#include "files/descriptor.hpp"

namespace trireme::files {

/// Gives the disk all that was written, and closes the file.
void finish(Descriptor& file);

/// A file of `text`, on the disk when this returns.
void write_file(const std::string& path, std::string_view text);
/// The same, but until it is whole, the file that was there stays.
void replace_file(const std::string& path, std::string_view text);

/// A file that gets its name when it is whole: fsync'ed, renamed, and the directory fsync'ed. Until
/// then nothing is at its path, or what was there before. It goes away unless commit() is called,
/// and is locked until then, so that remove_abandoned() finds those of processes that were killed.
class StagedFile {
 public:
  explicit StagedFile(std::string path);
  ~StagedFile();
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;

  /// Where `path` is written: `path`.HOST-PID.part, or with a suffix where another process has that
  /// name.
  [[nodiscard]] static std::string place(const std::string& path, const std::string& suffix = "");
  [[nodiscard]] const Descriptor& file() const { return file_; }
  void commit();

 private:
  std::string path_;
  Descriptor file_;
  bool committed_ = false;
};

/// Removes the staged files in `directory` with these names that no process holds a lock on: those
/// whose process was killed. On a file system without locks none is removed.
void remove_abandoned(const std::string& directory, const std::set<std::string>& names);

/// A whole file of `text`, by way of a StagedFile.
void write_staged(const std::string& path, std::string_view text);

/// A file that did not exist before. Throws StorageError when it does.
Descriptor new_file(const std::string& path);
/// Throws UserError when the file exists, or as below: before work whose result would be lost.
void expect_new_file(const std::string& path);
/// Throws UserError when files cannot be made in the directory of `path`.
void expect_place_for(const std::string& path);
/// A new file of `text`. Throws UserError when it exists.
void write_new_file(const std::string& path, std::string_view text);

}  // namespace trireme::files
