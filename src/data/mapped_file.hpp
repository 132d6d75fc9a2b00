// SPDX-License-Identifier: Apache-2.0
// A whole file in memory, read-only, as the operating system's page cache holds it: ranks of one
// node share the pages and nothing is copied. The file must not shrink while it is mapped.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

namespace trireme::data {

class MappedFile {
 public:
  MappedFile() = default;
  /// Throws StorageError when the file cannot be opened or mapped. An empty file gives no bytes.
  explicit MappedFile(std::string path);
  MappedFile(MappedFile&& other) noexcept
      : path_(std::move(other.path_)),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~MappedFile();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace trireme::data
