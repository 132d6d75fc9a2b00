// SPDX-License-Identifier: Apache-2.0
#include "text/pieces.hpp"

#include <algorithm>
#include <ranges>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace trireme::text {
namespace {

// The first spelling of each is the one that is written. Possessive intervals, as in \p{N}{1,3}+,
// are not among them: Oniguruma, which other tools run these with, reads one as any number of them.
struct Spelling {
  Pattern pattern;
  std::string_view expression;
};
constexpr Spelling spellings[] = {
    {Pattern::gpt2,
     R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {Pattern::gpt2, R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {Pattern::gpt2,
     R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)"},
    {Pattern::cl100k,
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)"},
    {Pattern::llama3,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {Pattern::llama3,
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"},
    {Pattern::nanochat,
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"},
    {Pattern::nanochat,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {Pattern::qwen2,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {Pattern::o200k,
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {Pattern::tekken,
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {Pattern::deepseek, R"(\p{N}{1,3})"},
    {Pattern::deepseek,
     "[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f\xe3\x82\xa0-\xe3\x83\xbf]+"},
    {Pattern::deepseek, R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^)"
                        "\r\n"
                        R"(\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[)"
                        "\r\n"
                        R"(]*|\s*[)"
                        "\r\n"
                        R"(]+|\s+(?!\S)|\s+)"},
};

}  // namespace

std::string pattern_names() {
  return fmt::format("{}", fmt::join(EnumNames<Pattern>::table | std::views::values, ", "));
}

std::vector<std::string_view> expressions_of(Pattern pattern) {
  std::vector<std::string_view> all;
  for (const Spelling& spelling : spellings)
    if (spelling.pattern == pattern && (all.empty() || pattern == Pattern::deepseek))
      all.push_back(spelling.expression);
  return all;
}

std::optional<Pattern> pattern_of_expressions(const std::vector<std::string_view>& expressions) {
  for (const Spelling& spelling : spellings)
    if (expressions == expressions_of(spelling.pattern) ||
        (spelling.pattern != Pattern::deepseek && expressions.size() == 1 &&
         expressions[0] == spelling.expression))
      return spelling.pattern;
  return std::nullopt;
}

std::size_t next_cut(std::string_view text, std::size_t from, bool whole) {
  const Kind *const kinds = kinds_of_code_points(), *const details = details_of_code_points();
  const auto* const begin = reinterpret_cast<const unsigned char*>(text.data());
  const auto* const end = begin + text.size();
  // The character that holds the byte before `from`: at most 4 bytes long, and only a well-formed
  // one is longer than 1.
  std::size_t at = from == 0 ? 0 : from - 1;
  for (std::size_t back = 2; back <= std::min<std::size_t>(from, 4); ++back)
    if (character_at(begin + from - back, end, kinds).bytes >= back)
      at = from - back;
  bool letter = false;
  const std::size_t last =
      whole ? text.size() : text.size() - std::min<std::size_t>(3, text.size());
  while (at < last) {
    const Character c = character_at(begin + at, end, kinds);
    if (letter && c.kind != Kind::letter && at >= from && begin[at] != '\'' &&
        detail::detail_at(begin + at, end, details).kind != Kind::mark &&
        (begin[at] < 0x80 || c.bytes == 1 || begins_nfc(code_point(begin + at, c.bytes))))
      return at;
    letter = c.kind == Kind::letter;
    at += c.bytes;
  }
  return text.size();
}

}  // namespace trireme::text
