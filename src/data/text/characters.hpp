// SPDX-License-Identifier: Apache-2.0
// Characters of a text that may be anything: their lengths and their kinds.
//
// 1. A well-formed UTF-8 sequence (Unicode, table 3-7: shortest form, no surrogates, at most
//    U+10FFFF) is one character.
// 2. Every byte that belongs to no such sequence is a character of its own, of the kind `other`, as
//    U+FFFD is. So every sequence of bytes has exactly one reading, and reading from a byte that
//    begins a character never depends on what comes before it.
// 3. A character that Unicode (unicode_version) has not assigned is `other`.
#pragma once

#include <cstdint>

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

/// Kinds of the bytes below 0x80.
struct AsciiKinds {
  constexpr AsciiKinds() {
    for (int c = 0; c < 128; ++c) {
      const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      kind[c] = letter                            ? Kind::letter
                : c >= '0' && c <= '9'            ? Kind::number
                : c == ' ' || (c >= 9 && c <= 13) ? Kind::space
                                                  : Kind::other;
    }
  }
  Kind kind[128] = {};
};
inline constexpr AsciiKinds ascii_kinds;

/// The character at `at`, which is below `end` and holds a byte from 0x80 on. The well-formed bytes
/// after a lead are its second's range and then 0x80 ... 0xBF.
inline Character multibyte_character(const unsigned char* at,
                                     const unsigned char* end,
                                     const Kind* kinds) {
  const std::uint32_t lead = *at;
  const auto left = end - at;
  const auto tail = [&](int i) { return (at[i] & 0xC0U) == 0x80U; };
  if (lead >= 0xC2 && lead < 0xE0) {
    if (left >= 2 && tail(1))
      return {kinds[(lead & 0x1FU) << 6U | (at[1] & 0x3FU)], 2};
  } else if (lead >= 0xE0 && lead < 0xF0) {
    if (left >= 3 && tail(1) && tail(2)) {
      const std::uint32_t code = (lead & 0x0FU) << 12U | (at[1] & 0x3FU) << 6U | (at[2] & 0x3FU);
      if (code >= 0x800 && (code < 0xD800 || code > 0xDFFF))
        return {kinds[code], 3};
    }
  } else if (lead >= 0xF0 && lead < 0xF5) {
    if (left >= 4 && tail(1) && tail(2) && tail(3)) {
      const std::uint32_t code =
          (lead & 0x07U) << 18U | (at[1] & 0x3FU) << 12U | (at[2] & 0x3FU) << 6U | (at[3] & 0x3FU);
      if (code >= 0x10000 && code <= 0x10FFFF)
        return {kinds[code], 4};
    }
  }
  return {Kind::other, 1};
}

/// The character at `at`, which is below `end`; never reads beyond `end`.
inline Character character_at(const unsigned char* at,
                              const unsigned char* end,
                              const Kind* kinds) {
  if (*at < 0x80)
    return {ascii_kinds.kind[*at], 1};
  return multibyte_character(at, end, kinds);
}

/// What stands for a byte that belongs to no character.
inline constexpr std::uint32_t no_code = 0xFFFFFFFF;

/// The code point of a well-formed character of 1 to 4 bytes.
inline std::uint32_t code_point(const unsigned char* at, std::uint8_t bytes) {
  std::uint32_t code = bytes == 1 ? *at : *at & (0xFFU >> (bytes + 1U));
  for (std::uint8_t i = 1; i < bytes; ++i) code = code << 6U | (at[i] & 0x3FU);
  return code;
}

}  // namespace trireme::text
