// SPDX-License-Identifier: Apache-2.0
// A file that is written aside and gets its name when it is whole: fsync'ed, renamed, and the
// directory fsync'ed. Until then nothing is at its path, or what was there before.
#pragma once

#include <cstddef>
#include <cstdint>
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

 private:
  std::string path_;
  int value_;
};

/// A file that goes away unless commit() gives it its name.
class Draft {
 public:
  explicit Draft(std::string path);
  ~Draft();
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;

  /// Where the draft of `path` is written: `path`.HOST-PID.part, which no other process writes.
  [[nodiscard]] static std::string place(const std::string& path);
  [[nodiscard]] const Descriptor& file() const { return file_; }
  void commit();

 private:
  std::string path_, draft_;
  Descriptor file_;
  bool committed_ = false;
};

/// Whether a file of this name is what a crash left of a Draft of `target`, a name as well.
bool is_draft_of(std::string_view target, std::string_view name);

/// A whole file of `text`, written as a Draft.
void write_file(const std::string& path, std::string_view text);

}  // namespace trireme::tokens
