// SPDX-License-Identifier: Apache-2.0
// Reads the bytes of a text file from beginning to end, decompressed if the first bytes are those
// of gzip, zstd, bzip2 or xz data. Several compressed members in one file are one text.
//
// 1. Memory is bounded by buffers of a fixed size, however long the text is.
// 2. Damaged or truncated data are a UserError with the file's name, never a shorter text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tokens/file_kind.hpp"

namespace trireme::tokens {

/// The compression, according to the first bytes of the file.
Packing packing_of(const std::string& path);

/// Sequential; one thread uses it.
class TextInput {
 public:
  virtual ~TextInput() = default;
  /// Returns 0 at the end only. Throws UserError for damaged compression, StorageError.
  virtual std::size_t read_some(std::span<std::byte> bytes) = 0;
  /// Up to `size` bytes, fewer at the end only.
  std::string read_front(std::size_t size);
};

/// Of a file that is not compressed, the bytes [begin, end); end -1: to its end.
std::unique_ptr<TextInput> open_text(const std::string& path,
                                     std::int64_t begin = 0,
                                     std::int64_t end = -1);

}  // namespace trireme::tokens
