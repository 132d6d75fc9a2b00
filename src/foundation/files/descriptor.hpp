// SPDX-License-Identifier: Apache-2.0
// An open file with the calls of the operating system, repeated after EINTR and partial transfers.
// A failure is a StorageError that names the call, the path and the system's message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trireme::files {

/// Throws StorageError: `statement` ("open PATH") failed with this errno value.
[[noreturn]] void fail(const std::string& statement, int error);

/// What a lock without waiting came to. not_supported: the file system has none, or this process
/// may not take one; nothing is locked then.
enum class Taken { yes, by_another, not_supported };

class Descriptor {
 public:
  Descriptor() = default;
  /// `flags` as of open(2).
  Descriptor(std::string path, int flags);
  /// Of a regular file only. A FIFO, a directory or a device in its place is refused by name;
  /// opening one without this check might never return, or fail later with a message that does not
  /// state the cause.
  static Descriptor regular(std::string path, int flags);
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] bool is_open() const { return file_ >= 0; }
  [[nodiscard]] int number() const { return file_; }
  /// Bytes now.
  [[nodiscard]] std::int64_t size() const;
  /// At most bytes.size() of them, from `offset` on; fewer at the end only.
  [[nodiscard]] std::size_t read_some(std::int64_t offset, std::span<std::byte> bytes) const;
  /// Appends to what was written last.
  void write(std::span<const std::byte> bytes) const;
  void write(std::string_view text) const { write(std::as_bytes(std::span(text))); }
  void write_at(std::int64_t offset, std::span<const std::byte> bytes) const;
  /// Asks the kernel to begin the transfer to the disk. A file system that cannot loses only time.
  void begin_transfer(std::int64_t offset, std::int64_t count) const noexcept;
  /// Continues writing at `offset`; what was behind it is gone.
  void rewind(std::int64_t offset) const;
  /// Replaces the bytes at the beginning.
  void rewrite_front(std::span<const std::byte> bytes) const;
  /// To the disk, where the file system can.
  void sync() const;
  /// With an error where the destructor has none.
  void close();

  /// `waits`: until another process gives it up.
  [[nodiscard]] Taken lock(bool alone, bool waits = false) const;
  /// The file at the path is still this one. Throws StorageError where the system does not tell.
  [[nodiscard]] bool in_place() const;
  /// Makes the file as new as a purge by age asks.
  void touch() const noexcept;

 private:
  std::string path_;
  int file_ = -1;
};

/// A regular file that is only read. Reads are by position, so several threads may read one file. A
/// file that is shorter than what is asked for, because it was cut meanwhile, is a StorageError with
/// its name, never a signal.
class InputFile {
 public:
  InputFile() = default;
  explicit InputFile(std::string path);

  [[nodiscard]] const std::string& path() const { return file_.path(); }
  /// Bytes, when it was opened.
  [[nodiscard]] std::int64_t size() const { return size_; }
  /// Fills `bytes` from `offset` on.
  void read(std::int64_t offset, std::span<std::byte> bytes) const;
  /// At most bytes.size() of them; fewer at the end only.
  [[nodiscard]] std::size_t read_some(std::int64_t offset, std::span<std::byte> bytes) const {
    return file_.read_some(offset, bytes);
  }

 private:
  Descriptor file_;
  std::int64_t size_ = 0;
};

/// All bytes of a file.
std::string read_whole(const std::string& path);

}  // namespace trireme::files
