// SPDX-License-Identifier: Apache-2.0
// A file that grows at its end, by whole pieces: one that could not be written whole, because the
// disk is full for example, is cut off again. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::record {

class AppendFile {
 public:
  /// Which file: one that is there, or a new one in whose place nothing may be.
  enum class Open : std::uint8_t { there, anew };

  /// Throws StorageError.
  AppendFile(std::string path, Open how);
  ~AppendFile();
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&&) = delete;

  /// With the operating system when this returns. Throws StorageError.
  void append(std::string_view bytes);
  /// Puts it on the disk and gives it another name, in the place of what has that one. Throws
  /// StorageError.
  void replace(const std::string& path);

 private:
  [[noreturn]] void fail(const char* what, int reason) const;

  std::string path_;
  int descriptor_ = -1;
  std::int64_t size_ = 0;
};

}  // namespace trireme::record
