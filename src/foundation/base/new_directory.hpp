// SPDX-License-Identifier: Apache-2.0
// Files and directories that are new when they appear, and whole: for results that a user keeps.
//
// 1. Nothing that is there is overwritten. Anything but an empty directory at the path of a new
//    directory is a UserError, before the work and again after it.
// 2. A directory is written beside its place, as PATH.part-PID; every file in it is synchronized
//    before commit() renames it. So there is either all of it or none; what was not committed is
//    removed.
// 3. Failures are StorageErrors with the call, the path and the system's message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

/// A file that did not exist before, written from front to end.
class NewFile {
 public:
  explicit NewFile(std::string path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  /// On the disk when this returns.
  void close();

 private:
  std::string path_;
  int descriptor_ = -1;
  std::int64_t bytes_ = 0;
};

/// Throws UserError when something is at `path`, an empty directory aside.
void expect_new_directory(const std::string& path);

class NewDirectory {
 public:
  /// Makes the directory beside its place, and those around it. Throws UserError (rule 1).
  explicit NewDirectory(const std::string& path);
  ~NewDirectory();
  NewDirectory(const NewDirectory&) = delete;
  NewDirectory& operator=(const NewDirectory&) = delete;

  /// Where it is until commit().
  [[nodiscard]] const std::string& aside() const { return aside_; }
  [[nodiscard]] std::string file(const std::string& name) const { return aside_ + "/" + name; }
  /// A whole file at once.
  void write(const std::string& name, std::string_view bytes) const;
  /// Requires: all files are closed.
  void commit();

 private:
  std::string path_, target_, aside_;
  bool committed_ = false;
};

}  // namespace trireme
