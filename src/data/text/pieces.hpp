// SPDX-License-Identifier: Apache-2.0
// Cuts a text into pieces, inside of which byte pairs are then merged. The patterns are published as
// regular expressions; here each is a scanner that gives the same pieces. L, N and white space are
// defined in characters.hpp.
//
//   gpt2      's|'t|'re|'ve|'m|'ll|'d| ?L+| ?N+| ?[^ space L N]+|space+ not before text|space+
//   llama3    (any case) contractions | [^\r\n L N]?L+ | N{1,3} | ?[^ space L N]+[\r\n]* |
//             space*[\r\n]+ | space+ not before text | space+
//   nanochat  as llama3 with N{1,2}
//   cl100k    as llama3, but white space that ends the text is one piece, new lines or not: the
//             expression that tiktoken has had since 0.6
//
// 1. The pieces follow one another without a gap: together they are the text.
// 2. A piece begins where its predecessor ends, and does not depend on anything before that.
// 3. If a letter is followed by something that is not a letter, a piece ends there, with every
//    pattern and in any context. So a text may be cut there: its pieces are those of its parts
//    (next_cut).
// 4. Scanners allocate nothing, and their time is linear in the text, whatever it contains.
//
// Source: openai/gpt-2 src/encoder.py; openai/tiktoken tiktoken_ext/openai_public.py;
// meta-llama/llama3 llama/tokenizer.py; karpathy/nanochat nanochat/tokenizer.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/characters.hpp"

namespace trireme::text {

enum class Pattern : std::uint8_t { gpt2, cl100k, llama3, nanochat };

/// Its name in options and files.
std::string_view name_of(Pattern pattern);
std::optional<Pattern> pattern_named(std::string_view name);
/// "gpt2, cl100k, llama3, nanochat".
std::string pattern_names();
/// The regular expression in the spelling that is written into tokenizer.json; gpt2 has none there.
std::string_view expression_of(Pattern pattern);
/// The pattern of a regular expression, in any of the spellings that are known to mean the same.
std::optional<Pattern> pattern_of_expression(std::string_view expression);

/// The first place at or after `from` where the text may be cut (3.); text.size() when there is
/// none. `text` is a window of a whole text: it begins where that does, or at least 4 bytes before
/// `from`. `whole`: it ends where that does; otherwise its last 3 bytes are read, but no cut is
/// in them.
std::size_t next_cut(std::string_view text, std::size_t from, bool whole);

// The scanners. `kinds` is kinds_of_code_points(), `end` the end of the text; each returns the
// first byte that does not belong to what it scans. They are here so that split() can inline them.
namespace detail {

using Byte = unsigned char;

/// The end of a run of letters that begins at `at`.
inline const Byte* after_letters(const Byte* at, const Byte* end, const Kind* kinds) {
  while (at < end) {
    const Character c = character_at(at, end, kinds);
    if (c.kind != Kind::letter)
      break;
    at += c.bytes;
  }
  return at;
}

/// The end of a run of characters of one kind.
inline const Byte* after_kind(Kind kind, const Byte* at, const Byte* end, const Kind* kinds) {
  while (at < end) {
    const Character c = character_at(at, end, kinds);
    if (c.kind != kind)
      break;
    at += c.bytes;
  }
  return at;
}

/// The end of up to `most` numbers.
inline const Byte* after_numbers(int most, const Byte* at, const Byte* end, const Kind* kinds) {
  for (; most > 0 && at < end; --most) {
    const Character c = character_at(at, end, kinds);
    if (c.kind != Kind::number)
      break;
    at += c.bytes;
  }
  return at;
}

/// White space from one character on.
struct SpaceRun {
  const Byte* end;         ///< of the run
  const Byte* last;        ///< its last character
  const Byte* after_line;  ///< after its last \r or \n; null without one
};
inline SpaceRun space_run(const Byte* at, const Byte* end, const Kind* kinds) {
  SpaceRun run{at, at, nullptr};
  while (run.end < end) {
    const Character c = character_at(run.end, end, kinds);
    if (c.kind != Kind::space)
      break;
    run.last = run.end;
    run.end += c.bytes;
    if (*run.last == '\n' || *run.last == '\r')
      run.after_line = run.end;
  }
  return run;
}

/// White space that something follows leaves it its last character, unless that is its only one.
inline const Byte* shortened(const SpaceRun& run, const Byte* at, const Byte* end) {
  return run.end == end || run.last == at ? run.end : run.last;
}

/// The end of a contraction whose apostrophe is at `at`; `at` when there is none.
inline const Byte* after_contraction(const Byte* at, const Byte* end) {
  const auto left = end - at;
  if (left < 2)
    return at;
  switch (at[1]) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return at + 2;
    case 'r':
    case 'v':
      return left > 2 && at[2] == 'e' ? at + 3 : at;
    case 'l':
      return left > 2 && at[2] == 'l' ? at + 3 : at;
    default:
      return at;
  }
}
/// The same in either case; U+017F, the long s, is an s when case is ignored.
inline const Byte* after_contraction_any_case(const Byte* at, const Byte* end) {
  const auto left = end - at;
  if (left < 2)
    return at;
  const auto lower = [](Byte c) { return static_cast<Byte>(c | 0x20U); };
  if (at[1] >= 0x80)
    return left > 2 && at[1] == 0xC5 && at[2] == 0xBF ? at + 3 : at;
  switch (lower(at[1])) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return at + 2;
    case 'r':
    case 'v':
      return left > 2 && lower(at[2]) == 'e' ? at + 3 : at;
    case 'l':
      return left > 2 && lower(at[2]) == 'l' ? at + 3 : at;
    default:
      return at;
  }
}

/// The end of the piece that begins at `at`, below `end`.
inline const Byte* gpt2_piece(const Byte* at, const Byte* end, const Kind* kinds) {
  if (*at == '\'')
    if (const Byte* after = after_contraction(at, end); after != at)
      return after;
  const Byte* first = *at == ' ' && at + 1 < end ? at + 1 : at;
  const Character c = character_at(first, end, kinds);
  if (c.kind == Kind::letter)
    return after_letters(first + c.bytes, end, kinds);
  if (c.kind != Kind::space)
    return after_kind(c.kind, first + c.bytes, end, kinds);
  return shortened(space_run(at, end, kinds), at, end);
}

/// cl100k (end_is_one), llama3 and nanochat, which differ in `digits`.
template <int digits, bool end_is_one>
inline const Byte* gpt4_piece(const Byte* at, const Byte* end, const Kind* kinds) {
  if (*at == '\'')
    if (const Byte* after = after_contraction_any_case(at, end); after != at)
      return after;
  const Character c = character_at(at, end, kinds);
  if (c.kind == Kind::letter)
    return after_letters(at + c.bytes, end, kinds);
  if (c.kind == Kind::number)
    return after_numbers(digits - 1, at + c.bytes, end, kinds);
  if (*at != '\r' && *at != '\n') {
    const Byte* word = at + c.bytes;
    if (const Byte* after = after_letters(word, end, kinds); after != word)
      return after;
  }
  const Byte* first = *at == ' ' ? at + 1 : at;
  if (const Byte* after = after_kind(Kind::other, first, end, kinds); after != first) {
    while (after < end && (*after == '\r' || *after == '\n')) ++after;
    return after;
  }
  const SpaceRun run = space_run(at, end, kinds);
  if (end_is_one && run.end == end)
    return end;
  return run.after_line != nullptr ? run.after_line : shortened(run, at, end);
}

}  // namespace detail

/// Calls take(piece) for every piece of `text`, in order.
template <class Take>
void split(Pattern pattern, std::string_view text, Take&& take) {
  const Kind* kinds = kinds_of_code_points();
  const auto* at = reinterpret_cast<const detail::Byte*>(text.data());
  const auto* const end = at + text.size();
  const auto run = [&](auto piece) {
    while (at < end) {
      const auto* const after = piece(at, end, kinds);
      take(std::string_view(reinterpret_cast<const char*>(at),
                            static_cast<std::size_t>(after - at)));
      at = after;
    }
  };
  switch (pattern) {
    case Pattern::gpt2:
      return run([](auto... a) { return detail::gpt2_piece(a...); });
    case Pattern::cl100k:
      return run([](auto... a) { return detail::gpt4_piece<3, true>(a...); });
    case Pattern::llama3:
      return run([](auto... a) { return detail::gpt4_piece<3, false>(a...); });
    case Pattern::nanochat:
      return run([](auto... a) { return detail::gpt4_piece<2, false>(a...); });
  }
}

}  // namespace trireme::text
