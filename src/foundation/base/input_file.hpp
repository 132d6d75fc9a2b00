// SPDX-License-Identifier: Apache-2.0
// A file that is only read: opened without blocking, and only when it is a regular file. A FIFO, a
// directory or a device in the place of a file is refused, and the message names its kind: to open
// one of them without this check might never return, or fail later with a message that does not
// name the cause.
//
// 1. Reads are by position (pread), so several threads may read one file; EINTR and short reads are
//    continued. A file that is shorter than what is asked for, because it was cut meanwhile, is an
//    error with its name, never a signal.
// 2. Failures are StorageErrors: the call, the path, the system's message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace trireme {

/// "" for a regular file, else what lies at the place: "a directory", "a FIFO", "a socket", "a
/// device". `mode` is st_mode.
const char* other_than_file(unsigned mode);

class InputFile {
 public:
  InputFile() = default;
  explicit InputFile(std::string path);
  InputFile(InputFile&& other) noexcept
      : path_(std::move(other.path_)),
        descriptor_(std::exchange(other.descriptor_, -1)),
        size_(other.size_) {}
  InputFile& operator=(InputFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(descriptor_, other.descriptor_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~InputFile();

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Bytes, when it was opened.
  [[nodiscard]] std::int64_t size() const { return size_; }
  /// Fills `bytes` from `offset` on.
  void read(std::int64_t offset, std::span<std::byte> bytes) const;
  /// At most bytes.size() of them; fewer at the end only.
  [[nodiscard]] std::size_t read_some(std::int64_t offset, std::span<std::byte> bytes) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  std::int64_t size_ = 0;
};

/// Throws StorageError when something other than a regular file is at `path`: before a library
/// opens it for writing, and would wait for the reader of a FIFO.
void expect_writable_place(const std::string& path);

/// All bytes of a file.
std::string read_whole(const std::string& path);

}  // namespace trireme
