// SPDX-License-Identifier: Apache-2.0
#include "text/serialized.hpp"

#include <charconv>

#include <fmt/format.h>

#include "base/error.hpp"

#include "text/unicode_ranges.hpp"
#include "text/vocabulary.hpp"

namespace trireme::text {
namespace {

constexpr std::string_view digits = "0123456789abcdef";

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
  [[nodiscard]] bool next_is(std::string_view line) const {
    return rest_.starts_with(line) && rest_.substr(line.size()).starts_with('\n');
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
  [[nodiscard]] bool done() const { return rest_.empty(); }

 private:
  std::string_view rest_;
  int number_ = 0;
};

void read_tokens(Lines& lines, Vocabulary& vocabulary) {
  const std::int64_t tokens = lines.number(lines.value("tokens"), std::int64_t{1} << 24U);
  for (std::int64_t id = 0; id < tokens; ++id) {
    std::string_view line = lines.next();
    if (line == "-") {
      vocabulary.tokens.emplace_back();
      continue;
    }
    const bool special = line.starts_with('*'), added = line.starts_with('+');
    if (special || added)
      line.remove_prefix(1);
    if (const std::string problem = put_token(vocabulary, id, {lines.bytes(line), special, added});
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

}  // namespace

std::string to_text(const Vocabulary& vocabulary) {
  std::string text(serialized_bpe);
  text += fmt::format("pattern {}\nunicode {}\nrule {}\nwhole_pieces {}\nend_of_text {}\n",
                      name_of(vocabulary.pattern), unicode_version,
                      vocabulary.rule == MergeRule::listed ? "listed" : "ranked",
                      vocabulary.whole_pieces ? "yes" : "no",
                      vocabulary.end_of_text ? std::to_string(*vocabulary.end_of_text) : "none");
  if (vocabulary.nfc)
    text += "normalize nfc\n";
  text += fmt::format("tokens {}\n", vocabulary.tokens.size());
  for (const VocabularyEntry& entry : vocabulary.tokens) {
    if (!entry.ordinary())
      text.push_back(entry.special ? '*' : entry.added ? '+' : '-');
    add_hex(text, entry.bytes);
    text.push_back('\n');
  }
  text += fmt::format("merges {}\n", vocabulary.merges.size());
  for (const auto& [left, right] : vocabulary.merges)
    fmt::format_to(std::back_inserter(text), "{} {}\n", left, right);
  return text;
}

Vocabulary vocabulary_from(std::string_view text) {
  if (!text.starts_with(serialized_bpe))
    throw UserError({"serialized tokenizer"}, "it is not a serialized vocabulary of byte pairs");
  Lines lines(text);
  lines.next();
  lines.next();
  Vocabulary vocabulary;
  const auto pattern = pattern_named(lines.value("pattern"));
  if (!pattern)
    lines.refuse(fmt::format("a pattern that is not one of {}", pattern_names()));
  vocabulary.pattern = *pattern;
  lines.value("unicode");  // of the table that it was written with; this one's is what counts now
  const std::string_view rule = lines.value("rule");
  if (rule != "listed" && rule != "ranked")
    lines.refuse("a rule that is neither 'listed' nor 'ranked'");
  vocabulary.rule = rule == "listed" ? MergeRule::listed : MergeRule::ranked;
  const std::string_view whole = lines.value("whole_pieces");
  if (whole != "yes" && whole != "no")
    lines.refuse("neither 'yes' nor 'no'");
  vocabulary.whole_pieces = whole == "yes";
  const std::string_view end_of_text = lines.value("end_of_text");
  if (end_of_text != "none")
    vocabulary.end_of_text = static_cast<Token>(lines.number(end_of_text, std::int64_t{1} << 24U));
  if (lines.next_is("normalize nfc")) {
    lines.next();
    vocabulary.nfc = true;
  }
  read_tokens(lines, vocabulary);
  if (vocabulary.end_of_text &&
      (*vocabulary.end_of_text >= std::ssize(vocabulary.tokens) ||
       !vocabulary.tokens[static_cast<std::size_t>(*vocabulary.end_of_text)].special))
    lines.refuse("end_of_text is not a special token");
  read_merges(lines, vocabulary);
  if (!lines.done())
    lines.refuse("text after the last merge");
  return vocabulary;
}

}  // namespace trireme::text
