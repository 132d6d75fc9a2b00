// SPDX-License-Identifier: Apache-2.0
// A directory that is new when it appears, and whole: for results that a user keeps.
//
// 1. Nothing that is there is overwritten. Anything but an empty directory at the path is a
//    UserError, before the work and again after it.
// 2. It is written beside its place, as PATH.part-PID; every file in it is synchronized before
//    commit() renames it. So there is either all of it or none; what was not committed is removed.
#pragma once

#include <string>
#include <string_view>

namespace trireme::files {

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

}  // namespace trireme::files
