// SPDX-License-Identifier: Apache-2.0
// A lock file, so that two jobs do not write into the same place: an flock, and a line in the file
// that names the holder. The lock ends with the last process that holds it, even if that is killed.
// The line stays, and then means nothing.
#pragma once

#include <string>

#include "files/descriptor.hpp"

namespace trireme::files {

class FileLock {
 public:
  /// Opens the file, and makes it where there is none; nothing is locked yet. Throws StorageError,
  /// in which `purpose` goes before the statement.
  explicit FileLock(const std::string& path, const std::string& purpose = "");

  /// Without waiting: no other process has the lock, alone or shared.
  [[nodiscard]] Taken take_alone() { return file_.lock(true); }
  /// The same, and waits for other processes to give it up.
  [[nodiscard]] Taken wait_alone() { return file_.lock(true, true); }
  /// Without waiting: no other process has it alone. What was taken alone is shared from then on.
  [[nodiscard]] Taken share() { return file_.lock(false); }

  /// The file at the path is still the one that was opened. Throws StorageError.
  [[nodiscard]] bool in_place() const { return file_.in_place(); }
  /// Makes the file as new as a purge by age asks.
  void touch() const noexcept { file_.touch(); }

  /// Writes the line that holder() reads: "process 4711 on node07". Throws StorageError, and
  /// UserError when the file holds anything else: it is another program's.
  void sign(const std::string& host) const;
  /// The line, of the process that signed last; `unknown` where there is none.
  [[nodiscard]] std::string holder(const std::string& unknown) const;

 private:
  Descriptor file_;
};

}  // namespace trireme::files
