// SPDX-License-Identifier: Apache-2.0
// A lock file, which prevents two jobs from writing to the same place. It is locked with flock, and
// a line in it names the holder. The lock ends with the last process that holds it, even if that is
// killed. The line then remains without meaning.
#pragma once

#include <string>

#include "files/descriptor.hpp"

namespace trireme::files {

class FileLock {
 public:
  /// Opens the file, or creates it if it does not exist, without locking it. Throws StorageError;
  /// its message starts with `purpose`.
  explicit FileLock(const std::string& path, const std::string& purpose = "");

  /// Takes an exclusive lock without waiting.
  [[nodiscard]] Taken take_alone() { return file_.lock(true); }
  /// Takes an exclusive lock, and waits until other processes release theirs.
  [[nodiscard]] Taken wait_alone() { return file_.lock(true, true); }
  /// Takes a shared lock without waiting. An exclusive lock held by this object becomes shared.
  [[nodiscard]] Taken share() { return file_.lock(false); }

  /// Whether the path still refers to the file that was opened. Throws StorageError.
  [[nodiscard]] bool in_place() const { return file_.in_place(); }
  void touch() const noexcept { file_.touch(); }

  /// Writes the line that holder() reads: "process 4711 on node07". Throws StorageError, or
  /// UserError if the file has other content, because it then belongs to another program.
  void sign(const std::string& host) const;
  /// The line of the process that signed last, or `unknown` if the file is empty.
  [[nodiscard]] std::string holder(const std::string& unknown) const;

 private:
  Descriptor file_;
};

}  // namespace trireme::files
