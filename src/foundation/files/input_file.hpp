// SPDX-License-Identifier: Apache-2.0
// A regular file that is only read. Reads are by position, so several threads may read one file. A
// file that is shorter than what is asked for, because it was cut meanwhile, is a StorageError with
// its name, never a signal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "files/descriptor.hpp"

namespace trireme::files {

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
