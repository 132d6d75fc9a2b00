// SPDX-License-Identifier: Apache-2.0
// What kind of file something is, by its first bytes and never by its name: the table of formats
// that trireme reads (compressed text, arrays of tokens), and of formats that users have and that
// would be misread as text or as raw tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::tokens {

enum class Packing : std::uint8_t { none, gzip, zstd, bzip2, xz };

struct FileKind {
  std::string_view name;       ///< "a Parquet file"
  std::string_view in_text;    ///< what to do with one in `text`; empty: it is decompressed
  std::string_view in_tokens;  ///< what to do with one in `tokens`; empty: it is read
  Packing packing = Packing::none;
  bool weak = false;  ///< so short a mark that raw tokens may begin with it
};

inline constexpr std::string_view numpy_magic = "\x93NUMPY";

/// Bytes from the front of a file that are enough for kind_of().
inline constexpr std::size_t kind_front = 512;

/// The kind of a file that begins with these bytes; nullptr: none of the table, such as text.
const FileKind* kind_of(std::string_view front);

/// Whether the beginning of a file is no text: more than 1 % are control characters other than
/// white space, backspace and escape. A stray NUL does not make a text binary.
bool is_binary(std::string_view front);

}  // namespace trireme::tokens
