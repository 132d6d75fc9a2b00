// SPDX-License-Identifier: Apache-2.0
// The scanners of patterns that tell capitals, marks, punctuation and symbols apart (pieces.hpp).
// `details` is details_of_code_points().
#pragma once

#include "text/scanners.hpp"

namespace trireme::text::detail {

constexpr bool is_letter(Kind kind) {
  return kind == Kind::letter || kind == Kind::upper || kind == Kind::lower;
}
constexpr bool in_word(Kind kind) {
  return is_letter(kind) || kind == Kind::mark;
}
constexpr bool in_signs(Kind kind) {
  return kind == Kind::punctuation || kind == Kind::symbol;
}

/// The character at `at`; at the end of the text, a space of 0 bytes.
inline Character detail_at(const Byte* at, const Byte* end, const Kind* details) {
  return at < end ? character_at(at, end, details) : Character{Kind::space, 0};
}

/// The end of a run of characters for which `belongs` holds.
template <class Belongs>
const Byte* after_run(const Byte* at, const Byte* end, const Kind* details, Belongs&& belongs) {
  for (;;) {
    const Character c = detail_at(at, end, details);
    if (c.bytes == 0 || !belongs(c.kind))
      return at;
    at += c.bytes;
  }
}

/// A word in capitals and then small letters that begins at `at`; letters without case and marks are
/// both. `*lower`: the end of the longest one with a small letter at its end, or `at`; returns the
/// end of its capitals if there is none.
inline const Byte* after_cased(const Byte* at,
                               const Byte* end,
                               const Kind* details,
                               const Byte** lower) {
  *lower = at;
  for (const Byte* next = at;;) {
    const Character c = detail_at(next, end, details);
    if (c.kind == Kind::lower) {
      *lower = after_run(next, end, details,
                         [](Kind kind) { return in_word(kind) && kind != Kind::upper; });
      return *lower;
    }
    if (c.bytes == 0 || !in_word(c.kind))
      return next;
    next += c.bytes;
    if (c.kind != Kind::upper)
      *lower = next;
  }
}

/// The word of o200k and tekken at `at`, a character before it included; `at`: there is none.
inline const Byte* after_cased_word(const Byte* at, const Byte* end, const Kind* details) {
  const Character first = detail_at(at, end, details);
  const bool prefix =
      !is_letter(first.kind) && first.kind != Kind::number && *at != '\r' && *at != '\n';
  const Byte* const after_prefix = prefix ? at + first.bytes : at;
  const Byte *lower = nullptr, *lower_without = nullptr;
  const Byte* const upper = after_cased(after_prefix, end, details, &lower);
  if (lower != after_prefix)
    return lower;
  if (prefix) {
    const Byte* const without = after_cased(at, end, details, &lower_without);
    if (lower_without != at)
      return lower_without;
    return upper != after_prefix ? upper : without;
  }
  return upper;
}

/// o200k (contracts) and tekken.
template <int digits, bool contracts>
inline const Byte* cased_piece(const Byte* at,
                               const Byte* end,
                               const Kind* kinds,
                               const Kind* details) {
  const Byte* after = after_cased_word(at, end, details);
  if (after == at)
    return after_no_word<digits, true, false>(at, end, kinds);
  return contracts && after < end && *after == '\'' ? after_contraction<true>(after, end) : after;
}

/// DeepSeek's piece, of a part of the text without numbers, in which Chinese and Japanese characters
/// are alone or absent.
inline const Byte* deepseek_piece(const Byte* at, const Byte* end, const Kind* details) {
  const auto ascii_letter = [](Byte c) { return (c | 0x20U) >= 'a' && (c | 0x20U) <= 'z'; };
  const Character first = detail_at(at, end, details);
  const Byte* const second = at + first.bytes;
  if (*at < 0x80 && in_signs(first.kind) && second < end && ascii_letter(*second)) {
    const Byte* after = second;
    while (after < end && ascii_letter(*after)) ++after;
    return after;
  }
  if (in_word(first.kind))
    return after_run(second, end, details, in_word);
  const bool line = *at == '\r' || *at == '\n';
  const Character next = detail_at(second, end, details);
  if (!line && !in_signs(first.kind) && next.bytes > 0 && in_word(next.kind))
    return after_run(second, end, details, in_word);
  if (in_signs(first.kind) || (*at == ' ' && in_signs(next.kind))) {
    const Byte* after = after_run(second, end, details, in_signs);
    while (after < end && (*after == '\r' || *after == '\n')) ++after;
    return after;
  }
  if (first.kind == Kind::space)
    return nullptr;  // white space, as in the other patterns
  // What no part of the expression matches is a piece up to where one does.
  const Byte* after = second;
  for (;;) {
    const Character c = detail_at(after, end, details);
    const Character then = detail_at(after + c.bytes, end, details);
    if (c.bytes == 0 || c.kind != Kind::other || (then.bytes > 0 && in_word(then.kind)))
      return after;
    after += c.bytes;
  }
}

/// Whether a character is of the block of Chinese characters or of kana.
inline bool is_deepseek_east(const Byte* at, std::uint8_t bytes) {
  const std::uint32_t code = code_point(at, bytes);
  return (code >= 0x4E00 && code <= 0x9FA5) || (code >= 0x3040 && code <= 0x30FF);
}

}  // namespace trireme::text::detail
