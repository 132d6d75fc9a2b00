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

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/key.hpp"

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

namespace detail {

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
            if (const auto* numbers = detail::after_numbers(3, place, stop, known);
                numbers != place)
              return numbers;
            const auto* const after = detail::deepseek_piece(place, stop, details);
            return after != nullptr ? after : detail::after_space<true>(place, stop, known);
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
