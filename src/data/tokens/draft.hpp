// SPDX-License-Identifier: Apache-2.0
// A file that is written aside and gets its name when it is whole: fsync'ed, renamed, and the
// directory fsync'ed. Until then nothing is at its path, or what was there before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

namespace trireme::tokens {

/// Throws StorageError with the system's message for `error`.
[[noreturn]] void fail_storage(const std::string& statement, int error);

/// An open file that is written front to back; its members throw StorageError.
class Descriptor {
 public:
  Descriptor(const std::string& path, int flags);
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  void write(std::span<const std::byte> bytes) const;
  /// What was written at `offset`.
  void read_at(std::uint64_t offset, std::span<std::byte> bytes) const;
  /// Continues writing at `offset`; what lay after it is gone.
  void rewind(std::uint64_t offset) const;
  /// Replaces the bytes at the file's begin.
  void rewrite_front(std::span<const std::byte> bytes) const;
  void sync() const;
  /// Takes an flock without waiting, where the file system has it: false when another process does.
  [[nodiscard]] bool lock() const;
  /// The file at its path is still this one.
  [[nodiscard]] bool in_place() const;

 private:
  std::string path_;
  int value_;
};

/// A file that goes away unless commit() gives it its name. It is locked until then, so that
/// remove_abandoned_drafts() finds those of processes that were killed.
class Draft {
 public:
  explicit Draft(std::string path);
  ~Draft();
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;

  /// Where the draft of `path` is written: `path`.HOST-PID.part, or with a suffix where another
  /// process has that name.
  [[nodiscard]] static std::string place(const std::string& path, const std::string& suffix = "");
  [[nodiscard]] const Descriptor& file() const { return *file_; }
  void commit();

 private:
  std::string path_, draft_;
  std::optional<Descriptor> file_;
  bool committed_ = false;
};

/// Removes the drafts in `directory` of files with these names that no process holds a lock on:
/// those whose process was killed. On a file system without locks none is removed.
void remove_abandoned_drafts(const std::string& directory, const std::set<std::string>& targets);

/// A whole file of `text`, written as a Draft.
void write_file(const std::string& path, std::string_view text);

}  // namespace trireme::tokens
