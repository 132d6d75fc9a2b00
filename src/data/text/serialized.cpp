// SPDX-License-Identifier: Apache-2.0
#include "text/serialized.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.hpp"
#include "base/hash.hpp"

#include "text/unicode_ranges.hpp"
#include "text/vocabulary.hpp"

namespace trireme::text {
namespace {

constexpr std::string_view digits = "0123456789abcdef";
/// In the order of their enumerations.
constexpr std::string_view rules[] = {"listed", "ranked", "scored"},
                           prefixes[] = {"none", "text", "parts", "first_word", "words"};
/// What stands for a token that merges do not make.
constexpr std::string_view marks = "*+#";
constexpr std::string_view characters_pattern = "characters";

void add_hex(std::string& text, std::string_view bytes) {
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text.push_back(digits[byte >> 4U]);
    text.push_back(digits[byte & 15U]);
  }
}

/// The lines of a serialized vocabulary, one after the other.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}

  [[noreturn]] void refuse(std::string_view what) const {
    throw UserError({"serialized tokenizer", number_, 1},
                    fmt::format("{}; trireme did not write this, or it was damaged", what));
  }
  std::string_view next() {
    ++number_;
    const std::size_t end = rest_.find('\n');
    if (end == std::string_view::npos)
      refuse("a line is missing");
    const std::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return line;
  }
  /// What follows the word that the line begins with.
  std::string_view value(std::string_view word) {
    const std::string_view line = next();
    if (!line.starts_with(word) || line.size() <= word.size() || line[word.size()] != ' ')
      refuse(fmt::format("a line does not begin with '{}'", word));
    return line.substr(word.size() + 1);
  }
  /// 0 ... below - 1, without signs and leading zeros.
  std::int64_t number(std::string_view digits_of, std::int64_t below) const {
    std::int64_t value = -1;
    const auto [end, problem] =
        std::from_chars(digits_of.data(), digits_of.data() + digits_of.size(), value);
    if (problem != std::errc() || end != digits_of.data() + digits_of.size() || value < 0 ||
        value >= below || (digits_of.size() > 1 && digits_of.front() == '0'))
      refuse("not a number, or too large");
    return value;
  }
  std::string bytes(std::string_view hex) const {
    std::string result;
    if (hex.size() % 2 != 0 || hex.find_first_not_of(digits) != std::string_view::npos)
      refuse("bytes are not in pairs of hexadecimal digits");
    for (std::size_t i = 0; i < hex.size(); i += 2)
      result.push_back(static_cast<char>(digits.find(hex[i]) * 16 + digits.find(hex[i + 1])));
    return result;
  }
  /// The number of the line's value among `names`.
  std::size_t named(std::string_view word, std::span<const std::string_view> names) {
    const auto found = std::ranges::find(names, value(word)) - names.begin();
    if (found == std::ssize(names))
      refuse(fmt::format("'{}' is not one of {}", word, fmt::join(names, ", ")));
    return static_cast<std::size_t>(found);
  }
  [[nodiscard]] bool next_has(std::string_view word) const {
    return rest_.starts_with(word) && rest_.substr(word.size()).starts_with(' ');
  }
  [[nodiscard]] bool done() const { return rest_.empty(); }

 private:
  std::string_view rest_;
  int number_ = 0;
};

std::optional<Token> token_of(const Lines& lines, std::string_view digits_of) {
  if (digits_of == "none")
    return std::nullopt;
  return static_cast<Token>(lines.number(digits_of, std::int64_t{1} << 24U));
}

void read_tokens(Lines& lines, Vocabulary& vocabulary) {
  const std::int64_t tokens = lines.number(lines.value("tokens"), std::int64_t{1} << 24U);
  for (std::int64_t id = 0; id < tokens; ++id) {
    std::string_view line = lines.next();
    if (vocabulary.rule == MergeRule::scored) {
      const std::size_t space = std::min(line.find(' '), line.size() - 1);
      vocabulary.ranks.push_back(
          static_cast<std::uint32_t>(lines.number(line.substr(space + 1), std::int64_t{1} << 32U)));
      line = line.substr(0, space);
    }
    if (line == "-") {
      vocabulary.tokens.emplace_back();
      continue;
    }
    const std::size_t mark = line.empty() ? marks.size() : marks.find(line.front());
    if (mark < marks.size())
      line.remove_prefix(1);
    if (const std::string problem =
            put_token(vocabulary, id, {lines.bytes(line), mark == 0, mark == 1, mark == 2});
        !problem.empty())
      lines.refuse(problem);
  }
}

void read_merges(Lines& lines, Vocabulary& vocabulary) {
  const auto tokens = std::ssize(vocabulary.tokens);
  const std::int64_t merges = lines.number(lines.value("merges"), std::int64_t{1} << 24U);
  for (std::int64_t i = 0; i < merges; ++i) {
    const std::string_view line = lines.next();
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos)
      lines.refuse("a merge is not two ids");
    vocabulary.merges.emplace_back(
        static_cast<Token>(lines.number(line.substr(0, space), tokens)),
        static_cast<Token>(lines.number(line.substr(space + 1), tokens)));
  }
}

void read_roles(Lines& lines, Vocabulary& vocabulary) {
  if (lines.next_has("begin_of_text"))
    vocabulary.begin_of_text = token_of(lines, lines.value("begin_of_text"));
  while (lines.next_has("ends_of_text"))
    vocabulary.ends_of_text.push_back(token_of(lines, lines.value("ends_of_text")).value_or(-1));
  const auto expect_special = [&](std::string_view role, std::optional<Token> token) {
    if (token && (*token < 0 || *token >= std::ssize(vocabulary.tokens) ||
                  !vocabulary.tokens[static_cast<std::size_t>(*token)].special))
      lines.refuse(fmt::format("{} is not a special token", role));
  };
  expect_special("end_of_text", vocabulary.end_of_text);
  expect_special("begin_of_text", vocabulary.begin_of_text);
  for (const Token end : vocabulary.ends_of_text) expect_special("ends_of_text", end);
}

/// What decides the tokens of documents.
std::string tokens_text(const Vocabulary& vocabulary) {
  std::string text(serialized_bpe);
  text += fmt::format("pattern {}\nunicode {}\nrule {}\nwhole_pieces {}\nend_of_text {}\n",
                      vocabulary.characters ? characters_pattern : name_of(vocabulary.pattern),
                      unicode_version, rules[static_cast<std::size_t>(vocabulary.rule)],
                      vocabulary.whole_pieces ? "yes" : "no",
                      vocabulary.end_of_text ? std::to_string(*vocabulary.end_of_text) : "none");
  if (vocabulary.nfc)
    text += "normalize nfc\n";
  if (vocabulary.characters)
    text += fmt::format("prefix {}\n", prefixes[static_cast<std::size_t>(vocabulary.prefix)]);
  text += fmt::format("tokens {}\n", vocabulary.tokens.size());
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const VocabularyEntry& entry = vocabulary.tokens[id];
    if (!entry.ordinary())
      text.push_back(entry.special    ? marks[0]
                     : entry.added    ? marks[1]
                     : entry.fallback ? marks[2]
                                      : '-');
    add_hex(text, entry.bytes);
    if (vocabulary.rule == MergeRule::scored)
      fmt::format_to(std::back_inserter(text), " {}", vocabulary.ranks[id]);
    text.push_back('\n');
  }
  text += fmt::format("merges {}\n", vocabulary.merges.size());
  for (const auto& [left, right] : vocabulary.merges)
    fmt::format_to(std::back_inserter(text), "{} {}\n", left, right);
  return text;
}

}  // namespace

std::uint64_t hash_of(const Vocabulary& vocabulary) {
  return hash_bytes(tokens_text(vocabulary));
}

std::string to_text(const Vocabulary& vocabulary) {
  std::string text = tokens_text(vocabulary);
  if (vocabulary.begin_of_text)
    text += fmt::format("begin_of_text {}\n", *vocabulary.begin_of_text);
  for (const Token end : vocabulary.ends_of_text) text += fmt::format("ends_of_text {}\n", end);
  return text;
}

Vocabulary vocabulary_from(std::string_view text) {
  if (!text.starts_with(serialized_bpe))
    throw UserError({"serialized tokenizer"}, "it is not a serialized vocabulary of byte pairs");
  Lines lines(text);
  lines.next();
  lines.next();
  Vocabulary vocabulary;
  const std::string_view pattern = lines.value("pattern");
  vocabulary.characters = pattern == characters_pattern;
  if (const auto known = pattern_named(pattern))
    vocabulary.pattern = *known;
  else if (!vocabulary.characters)
    lines.refuse(fmt::format("a pattern that is not one of {}", pattern_names()));
  lines.value("unicode");  // of the table that it was written with; this one's is what counts now
  vocabulary.rule = static_cast<MergeRule>(lines.named("rule", rules));
  constexpr std::string_view no_yes[] = {"no", "yes"};
  vocabulary.whole_pieces = lines.named("whole_pieces", no_yes) == 1;
  vocabulary.end_of_text = token_of(lines, lines.value("end_of_text"));
  if (lines.next_has("normalize")) {
    constexpr std::string_view normalizers[] = {"nfc"};
    vocabulary.nfc = lines.named("normalize", normalizers) == 0;
  }
  if (vocabulary.characters)
    vocabulary.prefix = static_cast<SpacePrefix>(lines.named("prefix", prefixes));
  read_tokens(lines, vocabulary);
  read_merges(lines, vocabulary);
  read_roles(lines, vocabulary);
  if (!lines.done())
    lines.refuse("text after the last line");
  return vocabulary;
}

}  // namespace trireme::text
