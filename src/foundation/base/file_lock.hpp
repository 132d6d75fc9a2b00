// SPDX-License-Identifier: Apache-2.0
// A file that processes lock, so that two jobs do not write into the same place: an flock, and a
// line in the file that names the holder.
//
// 1. The lock ends with the last process that has it, however that ends; the line stays, without
//    meaning then.
// 2. On a file system without flock, or without the right to it, nothing is locked: take_alone()
//    and share() then return not_supported, and the caller decides.
#pragma once

#include <optional>
#include <string>

namespace trireme {

class FileLock {
 public:
  enum class Taken { yes, by_another, not_supported };

  /// Opens the file, and makes it where there is none; nothing is locked yet. Throws StorageError,
  /// in which `purpose` goes before the statement.
  explicit FileLock(std::string path, const std::string& purpose = "");
  ~FileLock();
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) = delete;
  FileLock(const FileLock&) = delete;

  /// Without waiting: no other process has the lock, alone or shared.
  [[nodiscard]] Taken take_alone();
  /// Without waiting: no other process has it alone. What was taken alone is shared from then on.
  [[nodiscard]] Taken share();

  /// The file at the path is still the one that was opened.
  [[nodiscard]] bool in_place() const;
  /// Makes the file as new as a purge by age asks.
  void touch() const noexcept;

  /// Writes the line that holder() reads: "process 4711 on node07". Throws StorageError, and
  /// UserError when the file holds anything else: it is another program's.
  void sign(const std::string& host) const;
  /// The line, of the process that signed last; `unknown` where there is none.
  [[nodiscard]] std::string holder(const std::string& unknown) const;

 private:
  [[nodiscard]] Taken lock(int operation) const;

  std::string path_;
  int file_;
};

}  // namespace trireme
