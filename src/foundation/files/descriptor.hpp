// SPDX-License-Identifier: Apache-2.0
// Wrapper of a file descriptor. System calls are repeated after EINTR and partial transfers. Errors
// are StorageErrors that name the call, the path and the system's message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trireme::files {

/// Throws StorageError: `statement` ("open PATH") failed with the errno value `error`.
[[noreturn]] void fail(const std::string& statement, int error);

/// Result of an attempt to lock a file. not_supported: the file system has no locks, or this
/// process may not lock the file; nothing is locked then.
enum class Taken { yes, by_another, not_supported };

class Descriptor {
 public:
  Descriptor() = default;
  /// `flags` are those of open(2).
  Descriptor(std::string path, int flags);
  /// Opens a regular file. Throws StorageError for a FIFO, a directory or a device. Without this
  /// check, opening one might block forever, or fail later with a message that hides the cause.
  static Descriptor regular(std::string path, int flags);
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] bool is_open() const { return file_ >= 0; }
  [[nodiscard]] int number() const { return file_; }
  /// Current size in bytes.
  [[nodiscard]] std::int64_t size() const;
  /// Reads from `offset` up to bytes.size() bytes; fewer only at the end of the file.
  [[nodiscard]] std::size_t read_some(std::int64_t offset, std::span<std::byte> bytes) const;
  /// Writes at the current position, after the previous write.
  void write(std::span<const std::byte> bytes) const;
  void write(std::string_view text) const { write(std::as_bytes(std::span(text))); }
  void write_at(std::int64_t offset, std::span<const std::byte> bytes) const;
  /// Asks the kernel to start writing a byte range to disk. Errors only cost time and are ignored.
  void begin_transfer(std::int64_t offset, std::int64_t count) const noexcept;
  /// Truncates the file to `offset` bytes and continues writing there.
  void rewind(std::int64_t offset) const;
  void rewrite_front(std::span<const std::byte> bytes) const;
  /// fsync, if the file system supports it.
  void sync() const;
  /// Throws StorageError if the close fails; the destructor ignores errors.
  void close();

  /// `alone`: exclusive, not shared. `waits`: block until other processes release their locks.
  [[nodiscard]] Taken lock(bool alone, bool waits = false) const;
  /// Whether the path still refers to this file. Throws StorageError if the system cannot tell.
  [[nodiscard]] bool in_place() const;
  /// Sets the file's timestamps to now, so that a purge by age does not remove it.
  void touch() const noexcept;

 private:
  std::string path_;
  int file_ = -1;
};

/// A regular file opened for reading. Reads are positional, so several threads may use one object.
/// Reading past the end, because the file was truncated after it was opened, is a StorageError with
/// the file's name, not a signal.
class InputFile {
 public:
  InputFile() = default;
  explicit InputFile(std::string path);

  [[nodiscard]] const std::string& path() const { return file_.path(); }
  /// Size in bytes when the file was opened.
  [[nodiscard]] std::int64_t size() const { return size_; }
  /// Fills `bytes` with the file's content from `offset` on.
  void read(std::int64_t offset, std::span<std::byte> bytes) const;
  [[nodiscard]] std::size_t read_some(std::int64_t offset, std::span<std::byte> bytes) const {
    return file_.read_some(offset, bytes);
  }

 private:
  Descriptor file_;
  std::int64_t size_ = 0;
};

std::string read_whole(const std::string& path);

}  // namespace trireme::files
