// SPDX-License-Identifier: Apache-2.0
// Writes a new directory that appears complete or not at all, for results that a user keeps.
//
// 1. Nothing is overwritten. Anything but an empty directory at the path is a UserError, before the
//    work and again after it.
// 2. It is written next to its final place, as PATH.part-PID. Every file in it is synced before
//    commit() renames it. A directory that was not committed is removed.
#pragma once

#include <string>
#include <string_view>

namespace trireme::files {

/// Throws UserError unless a new directory can be created at `path` (rule 1).
void expect_new_directory(const std::string& path);

class NewDirectory {
 public:
  /// Creates the temporary directory and the parent directories. Throws UserError (rule 1).
  explicit NewDirectory(const std::string& path);
  ~NewDirectory();
  NewDirectory(const NewDirectory&) = delete;
  NewDirectory& operator=(const NewDirectory&) = delete;

  /// Path of the temporary directory, in use until commit().
  [[nodiscard]] const std::string& aside() const { return aside_; }
  [[nodiscard]] std::string file(const std::string& name) const { return aside_ + "/" + name; }
  void write(const std::string& name, std::string_view bytes) const;
  /// Requires: all files in the directory are closed.
  void commit();

 private:
  std::string path_, target_, aside_;
  bool committed_ = false;
};

}  // namespace trireme::files
