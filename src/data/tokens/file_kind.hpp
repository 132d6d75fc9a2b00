// SPDX-License-Identifier: Apache-2.0
// Identifies a file by its first bytes, never by its name. The table has the formats that trireme
// reads (compressed text, arrays of tokens) and common formats that would otherwise be misread as
// text or as raw tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace trireme::tokens {

enum class Packing : std::uint8_t { none, gzip, zstd, bzip2, xz };

struct FileKind {
  std::string_view name;       ///< "a Parquet file"
  std::string_view in_text;    ///< what to do with one in `text`; empty: it is decompressed
  std::string_view in_tokens;  ///< what to do with one in `tokens`; empty: it is read
  Packing packing = Packing::none;
  bool weak = false;  ///< the mark is so short that raw tokens may begin with it
};

inline constexpr std::string_view numpy_magic = "\x93NUMPY";

/// Number of bytes at the beginning of a file that kind_of() needs.
inline constexpr std::size_t kind_front = 512;

/// The kind of a file that begins with these bytes; nullptr if the table has none, as for text.
const FileKind* kind_of(std::string_view front);

/// Whether the beginning of a file is binary: more than 1 % are control characters other than
/// white space, backspace and escape. A stray NUL does not make a text of 100 bytes binary.
bool is_binary(std::string_view front);

}  // namespace trireme::tokens
