// SPDX-License-Identifier: Apache-2.0
// The scanners of the patterns that only tell letters, numbers and white space apart (pieces.hpp),
// and what the others share with them. They are in a header so that split() can inline them.
//
// `kinds` is kinds_of_code_points(), `end` the end of the text; each scanner begins at `at`, below
// `end`, and returns the first byte that does not belong to what it scans.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "text/characters.hpp"

namespace trireme::text::detail {

using Byte = unsigned char;

/// How many of eight bytes, from the first on, are ASCII letters.
inline int letters_of(std::uint64_t eight) {
  constexpr std::uint64_t each = 0x0101010101010101U, high = 0x80U * each;
  const std::uint64_t lower = (eight | 0x20U * each) & ~high;
  // Bit 7 of a sum is set from this letter on.
  const std::uint64_t from_a = lower + (0x80U - 'a') * each, after_z = lower + (0x7FU - 'z') * each;
  return std::countr_zero((~from_a | after_z | eight) & high) / 8;
}

/// A run of characters of one kind; `at` when there is none.
inline const Byte* after_kind(Kind kind, const Byte* at, const Byte* end, const Kind* kinds) {
  while (at < end) {
    const Character c = character_at(at, end, kinds);
    if (c.kind != kind)
      break;
    at += c.bytes;
  }
  return at;
}

/// A run of letters; `at` when there is none.
inline const Byte* after_letters(const Byte* at, const Byte* end, const Kind* kinds) {
  while (end - at >= 8) {
    std::uint64_t eight;
    std::memcpy(&eight, at, sizeof eight);
    const int letters = letters_of(eight);
    at += letters;
    if (letters < 8 && *at < 0x80)
      return at;
    if (letters < 8)
      break;
  }
  return after_kind(Kind::letter, at, end, kinds);
}

/// Up to `most` numbers; `at` when there is none.
inline const Byte* after_numbers(int most, const Byte* at, const Byte* end, const Kind* kinds) {
  for (; most > 0 && at < end; --most) {
    const Character c = character_at(at, end, kinds);
    if (c.kind != Kind::number)
      break;
    at += c.bytes;
  }
  return at;
}

/// White space. What follows it takes its last character, unless that is its only one. With `lines`
/// it ends with its last \r or \n, if it has one; with `end_is_one` not at the end of the text.
template <bool lines, bool end_is_one = false>
inline const Byte* after_space(const Byte* at, const Byte* end, const Kind* kinds) {
  const Byte *last = at, *after = at, *after_line = nullptr;
  while (after < end) {
    const Character c = character_at(after, end, kinds);
    if (c.kind != Kind::space)
      break;
    last = after;
    after += c.bytes;
    if (*last == '\n' || *last == '\r')
      after_line = after;
  }
  if (lines && after_line != nullptr && !(end_is_one && after == end))
    return after_line;
  return after == end || last == at ? after : last;
}

/// A contraction whose apostrophe is at `at`; `at` when there is none. In `any_case` U+017F, the
/// long s, is an s.
template <bool any_case>
inline const Byte* after_contraction(const Byte* at, const Byte* end) {
  const auto left = end - at;
  const auto letter = [&](int i) { return static_cast<Byte>(any_case ? at[i] | 0x20U : at[i]); };
  if (left < 2)
    return at;
  if (any_case && at[1] >= 0x80)
    return left > 2 && at[1] == 0xC5 && at[2] == 0xBF ? at + 3 : at;
  switch (letter(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return at + 2;
    case 'r':
    case 'v':
      return left > 2 && letter(2) == 'e' ? at + 3 : at;
    case 'l':
      return left > 2 && letter(2) == 'l' ? at + 3 : at;
    default:
      return at;
  }
}

inline const Byte* gpt2_piece(const Byte* at, const Byte* end, const Kind* kinds) {
  if (*at == '\'')
    if (const Byte* after = after_contraction<false>(at, end); after != at)
      return after;
  const Byte* first = *at == ' ' && at + 1 < end ? at + 1 : at;
  const Character c = character_at(first, end, kinds);
  if (c.kind == Kind::letter)
    return after_letters(first + c.bytes, end, kinds);
  if (c.kind != Kind::space)
    return after_kind(c.kind, first + c.bytes, end, kinds);
  return after_space<false>(at, end, kinds);
}

/// What the later patterns have after their words: numbers, signs with the line breaks (and, with
/// `slash`, slashes) after them, and white space.
template <int digits, bool slash, bool end_is_one>
inline const Byte* after_no_word(const Byte* at, const Byte* end, const Kind* kinds) {
  if (const Byte* after = after_numbers(digits, at, end, kinds); after != at)
    return after;
  const Byte* first = *at == ' ' ? at + 1 : at;
  const Byte* after = after_kind(Kind::other, first, end, kinds);
  if (after == first)
    return after_space<true, end_is_one>(at, end, kinds);
  while (after < end && (*after == '\r' || *after == '\n' || (slash && *after == '/'))) ++after;
  return after;
}

/// cl100k (end_is_one), llama3, nanochat and qwen2, which differ in `digits`.
template <int digits, bool end_is_one>
inline const Byte* gpt4_piece(const Byte* at, const Byte* end, const Kind* kinds) {
  if (*at == '\'')
    if (const Byte* after = after_contraction<true>(at, end); after != at)
      return after;
  const Character c = character_at(at, end, kinds);
  if (c.kind == Kind::letter)
    return after_letters(at + c.bytes, end, kinds);
  if (c.kind != Kind::number && *at != '\r' && *at != '\n') {
    const Byte* word = at + c.bytes;
    if (const Byte* after = after_letters(word, end, kinds); after != word)
      return after;
  }
  return after_no_word<digits, false, end_is_one>(at, end, kinds);
}

}  // namespace trireme::text::detail
