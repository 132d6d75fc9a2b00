// SPDX-License-Identifier: Apache-2.0
// Characters of a text that may be anything: their lengths, their kinds, and their normalization.
//
// 1. A well-formed UTF-8 sequence (Unicode, table 3-7: shortest form, no surrogates, at most
//    U+10FFFF) is one character.
// 2. Every byte that belongs to no such sequence is a character of its own, of the kind `other`, as
//    U+FFFD is. So every sequence of bytes has exactly one reading, and reading from a byte that
//    begins a character never depends on what comes before it.
// 3. A character that Unicode (unicode_version) has not assigned is `other`.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/text.hpp"

namespace trireme::text {

/// Unicode's categories L and N, and its property White_Space; all else is `other`. The kinds from
/// `upper` on are told apart by details_of_code_points() alone, where `letter` has no case.
enum class Kind : std::uint8_t {
  other,
  letter,
  number,
  space,
  upper,  ///< Lu and Lt
  lower,  ///< Ll
  mark,
  punctuation,
  symbol
};

struct Character {
  Kind kind;
  std::uint8_t bytes;  ///< 1 to 4
};

/// Kinds of all code points, one byte each; made at its first use.
const Kind* kinds_of_code_points();
const Kind* details_of_code_points();

/// What stands for a byte that belongs to no character.
inline constexpr std::uint32_t no_code = 0xFFFFFFFF;

/// The code point of a well-formed character of 1 to 4 bytes.
inline std::uint32_t code_point(const unsigned char* at, std::uint8_t bytes) {
  std::uint32_t code = bytes == 1 ? *at : *at & (0xFFU >> (bytes + 1U));
  for (std::uint8_t i = 1; i < bytes; ++i) code = code << 6U | (at[i] & 0x3FU);
  return code;
}

void put_utf8(std::uint32_t code, std::string& out);

/// The character at `at`, which is below `end`; never reads beyond `end`.
[[gnu::always_inline]] inline Character character_at(const unsigned char* at,
                                                     const unsigned char* end,
                                                     const Kind* kinds) {
  if (*at < 0x80)
    return {kinds[*at], 1};
  const auto bytes = static_cast<std::uint8_t>(
      character_bytes({reinterpret_cast<const char*>(at), static_cast<std::size_t>(end - at)}));
  return {bytes == 1 ? Kind::other : kinds[code_point(at, bytes)], bytes};
}

/// The next of the numbers that the tables of unicode_ranges.hpp are coded as: five bits a
/// character, the lowest first; each but the last has 32 added.
inline std::uint32_t next_number(std::string_view& text) {
  std::uint32_t value = 0;
  for (unsigned shift = 0;; shift += 5) {
    const auto digit = static_cast<std::uint32_t>(text.front() - '0');
    text.remove_prefix(1);
    value |= (digit & 31U) << shift;
    if (digit < 32)
      return value;
  }
}

// Unicode's normalization form C: characters and their marks in one spelling, which some tokenizers
// (Qwen) bring a text into before they cut it. Bytes that are not UTF-8 stay what they are.

/// Whether the text is certainly in form C already: one pass, at about the speed of reading for text
/// below U+0300. False says nothing.
bool is_surely_nfc(std::string_view text);

std::string nfc(std::string_view text);

/// Whether form C of a text is that of its parts before and from this character on, whatever is
/// before it: it neither has a combining class nor composes with what it follows.
bool begins_nfc(std::uint32_t code);

}  // namespace trireme::text
