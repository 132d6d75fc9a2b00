// SPDX-License-Identifier: Apache-2.0
// Cuts a text into pieces, inside of which byte pairs are then merged. The patterns are published as
// regular expressions; here each is a scanner that gives the same pieces. L, N and white space are
// defined in characters.hpp.
//
//   gpt2      's|'t|'re|'ve|'m|'ll|'d| ?L+| ?N+| ?[^ space L N]+|space+ not before text|space+
//   llama3    (any case) contractions | [^\r\n L N]?L+ | N{1,3} | ?[^ space L N]+[\r\n]* |
//             space*[\r\n]+ | space+ not before text | space+
//   nanochat  as llama3 with N{1,2}
//   qwen2     as llama3 with N
//   cl100k    as llama3, but white space that ends the text is one piece, new lines or not: the
//             expression that tiktoken has had since 0.6
//   o200k     [^\r\n L N]? capitals* small+ contraction? | [^\r\n L N]? capitals+ contraction? |
//             N{1,3} | ?[^ space L N]+[\r\n/]* | white space as in llama3; marks and letters without
//             case are capitals and small
//   tekken    as o200k with N and without contractions
//   deepseek  in three passes: N{1,3}; Chinese characters and kana; sign and ASCII letters | [^\r\n L
//             P S]?[L M]+ | ?[P S]+[\r\n]* | white space as in llama3
//   smollm    as gpt2 between numbers, each of which is a piece
//
// 1. The pieces follow one another without a gap: together they are the text.
// 2. A piece begins where its predecessor ends, and does not depend on anything before that.
// 3. Where a letter is followed by something that is neither a letter nor a mark nor an apostrophe, a
//    piece ends, under every pattern and whatever surrounds the two. So a text may be cut there: its
//    pieces are those of its parts (next_cut), also in normalization form C.
// 4. Scanners allocate nothing, and their time is linear in the text, whatever it contains.
//
// Source: openai/gpt-2 src/encoder.py; openai/tiktoken tiktoken_ext/openai_public.py;
// meta-llama/llama3 llama/tokenizer.py; karpathy/nanochat nanochat/tokenizer.py.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/characters.hpp"
#include "text/word_pieces.hpp"

namespace trireme::text {

enum class Pattern : std::uint8_t {
  gpt2,
  cl100k,
  llama3,
  nanochat,
  qwen2,
  o200k,
  tekken,
  deepseek,
  smollm
};

/// Its name in options and files.
std::string_view name_of(Pattern pattern);
std::optional<Pattern> pattern_named(std::string_view name);
/// "gpt2, cl100k, ...".
std::string pattern_names();
/// The regular expressions, in the order of their passes, in the spelling that is written into
/// tokenizer.json, where smollm has other means.
std::vector<std::string_view> expressions_of(Pattern pattern);
/// The pattern of regular expressions, in any of the spellings that are known to mean the same.
std::optional<Pattern> pattern_of_expressions(const std::vector<std::string_view>& expressions);

/// The first place at or after `from` where the text may be cut (3.); text.size() when there is
/// none. `text` is a window of a whole text: it begins where that does, or at least 4 bytes before
/// `from`. `whole`: it ends where that does; otherwise its last 3 bytes are read, but no cut is
/// in them.
std::size_t next_cut(std::string_view text, std::size_t from, bool whole);

// The scanners. `kinds` is kinds_of_code_points(), `end` the end of the text; each returns the
// first byte that does not belong to what it scans. They are here so that split() can inline them.
namespace detail {

/// How many of eight bytes, from the first on, are ASCII letters.
inline int letters_of(std::uint64_t eight) {
  constexpr std::uint64_t each = 0x0101010101010101U, high = 0x80U * each;
  const std::uint64_t lower = (eight | 0x20U * each) & ~high;
  // Bit 7 of a sum is set from this letter on.
  const std::uint64_t from_a = lower + (0x80U - 'a') * each, after_z = lower + (0x7FU - 'z') * each;
  return std::countr_zero((~from_a | after_z | eight) & high) / 8;
}

/// The end of a run of letters that begins at `at`.
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

/// o200k (contracts) and tekken.
template <int digits, bool contracts>
inline const Byte* cased_piece(const Byte* at,
                               const Byte* end,
                               const Kind* kinds,
                               const Kind* details) {
  if (const Byte* after = after_cased_word(at, end, details); after != at) {
    if (contracts && after < end && *after == '\'')
      return after_contraction_any_case(after, end);
    return after;
  }
  const Character c = character_at(at, end, kinds);
  if (c.kind == Kind::number)
    return after_numbers(digits - 1, at + c.bytes, end, kinds);
  const Byte* first = *at == ' ' ? at + 1 : at;
  if (const Byte* after = after_kind(Kind::other, first, end, kinds); after != first) {
    while (after < end && (*after == '\r' || *after == '\n' || *after == '/')) ++after;
    return after;
  }
  const SpaceRun run = space_run(at, end, kinds);
  return run.after_line != nullptr ? run.after_line : shortened(run, at, end);
}

/// Pieces of parts: `class_of` tells apart the characters that earlier passes isolate.
template <class ClassOf, class Piece>
class InParts {
 public:
  InParts(ClassOf class_of, Piece piece) : class_of_(class_of), piece_(piece) {}
  const Byte* operator()(const Byte* at, const Byte* end, const Kind* kinds) {
    if (at >= part_end_) {
      Character c = character_at(at, end, kinds);
      const auto its = class_of_(at, c);
      for (part_end_ = at + c.bytes; part_end_ < end; part_end_ += c.bytes) {
        c = character_at(part_end_, end, kinds);
        if (class_of_(part_end_, c) != its)
          break;
      }
    }
    return piece_(at, part_end_, kinds);
  }

 private:
  ClassOf class_of_;
  Piece piece_;
  const Byte* part_end_ = nullptr;
};

}  // namespace detail

/// Calls take(piece) for every piece of `text`, in order.
template <class Take>
void split(Pattern pattern, std::string_view text, Take&& take) {
  const Kind* const kinds = kinds_of_code_points();
  const Kind* const details = details_of_code_points();
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
    case Pattern::qwen2:
      return run([](auto... a) { return detail::gpt4_piece<1, false>(a...); });
    case Pattern::o200k:
      return run([=](auto... a) { return detail::cased_piece<3, true>(a..., details); });
    case Pattern::tekken:
      return run([=](auto... a) { return detail::cased_piece<1, false>(a..., details); });
    case Pattern::deepseek:
      return run(detail::InParts(
          [](const detail::Byte* place, Character c) {
            return c.kind == Kind::number ? 1 : detail::is_deepseek_east(place, c.bytes) ? 2 : 0;
          },
          [=](const detail::Byte* place, const detail::Byte* stop, const Kind* known) {
            if (const auto* after = detail::after_numbers(3, place, stop, known); after != place)
              return after;
            if (const auto* after = detail::deepseek_piece(place, stop, details))
              return after;
            const detail::SpaceRun space = detail::space_run(place, stop, known);
            return space.after_line != nullptr ? space.after_line
                                               : detail::shortened(space, place, stop);
          }));
    case Pattern::smollm:
      return run(detail::InParts(
          [](const detail::Byte*, Character c) { return c.kind == Kind::number; },
          [](const detail::Byte* place, const detail::Byte* stop, const Kind* known) {
            const auto* const after = detail::after_numbers(1, place, stop, known);
            return after != place ? after : detail::gpt2_piece(place, stop, known);
          }));
  }
}

}  // namespace trireme::text
