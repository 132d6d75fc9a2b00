// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/hash.hpp"

#include "text/unicode_ranges.hpp"
#include "text/vocabulary.hpp"

namespace trireme::text {
namespace {

constexpr std::string_view digits = "0123456789abcdef";
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

[[noreturn]] void refuse(std::string_view what) {
  throw UserError({"serialized tokenizer"},
                  fmt::format("{}: trireme did not write this, or it was damaged", what));
}

/// The words of a serialized vocabulary. Whether all of them are as they should be is known in the
/// end, by writing the vocabulary again.
class Words {
 public:
  explicit Words(std::string_view text) : rest_(text) {}

  [[nodiscard]] bool next_is(std::string_view word) const { return rest_.starts_with(word); }
  std::string_view next() {
    const std::string_view word = rest_.substr(0, rest_.find_first_of(" \n"));
    rest_.remove_prefix(std::min(word.size() + 1, rest_.size()));
    return word;
  }
  /// What follows the next word, which is its name.
  std::string_view value() {
    next();
    return next();
  }
  template <class E>
  E named() {
    const auto found = value_named<E>(value());
    if (!found)
      refuse("a word is not known");
    return *found;
  }
  [[nodiscard]] bool done() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

/// The word as a number below 2^32; 0 if it is not one.
std::uint32_t number(std::string_view word) {
  std::uint32_t number = 0;
  std::from_chars(word.data(), word.data() + word.size(), number);
  return number;
}

std::string bytes_of(std::string_view hex) {
  std::string bytes;
  for (; hex.size() >= 2; hex.remove_prefix(2)) {
    unsigned char byte = 0;
    std::from_chars(hex.data(), hex.data() + 2, byte, 16);
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

void read_tokens(Words& words, Vocabulary& vocabulary) {
  const std::uint32_t tokens = number(words.value());
  for (std::uint32_t id = 0; id < tokens && !words.done(); ++id) {
    std::string_view word = words.next();
    if (vocabulary.rule == MergeRule::scored)
      vocabulary.ranks.push_back(number(words.next()));
    if (word == "-") {
      vocabulary.tokens.emplace_back();
      continue;
    }
    const std::size_t mark = word.empty() ? marks.size() : marks.find(word.front());
    if (mark < marks.size())
      word.remove_prefix(1);
    if (const std::string problem =
            put_token(vocabulary, id, {bytes_of(word), mark == 0, mark == 1, mark == 2});
        !problem.empty())
      refuse(problem);
  }
}

void read_merges(Words& words, Vocabulary& vocabulary) {
  const std::uint32_t merges = number(words.value());
  for (std::uint32_t i = 0; i < merges && !words.done(); ++i) {
    const std::uint32_t left = number(words.next()), right = number(words.next());
    if (std::max(left, right) >= vocabulary.tokens.size())
      refuse("a merge is not of two tokens");
    vocabulary.merges.emplace_back(static_cast<Token>(left), static_cast<Token>(right));
  }
}

void read_roles(Words& words, Vocabulary& vocabulary) {
  if (words.next_is("begin_of_text"))
    vocabulary.begin_of_text = static_cast<Token>(number(words.value()));
  while (words.next_is("ends_of_text"))
    vocabulary.ends_of_text.push_back(static_cast<Token>(number(words.value())));
  std::vector<Token> all = vocabulary.ends_of_text;
  for (const auto& role : {vocabulary.begin_of_text, vocabulary.end_of_text})
    if (role)
      all.push_back(*role);
  for (const Token token : all)
    if (!vocabulary.has_special(token))
      refuse(fmt::format("token {} is not a special one", token));
}

/// What decides the tokens of documents.
std::string tokens_text(const Vocabulary& vocabulary, std::string_view unicode) {
  std::string text(serialized_bpe);
  text += fmt::format("pattern {}\nunicode {}\nrule {}\nwhole_pieces {}\nend_of_text {}\n",
                      vocabulary.characters ? characters_pattern : word(vocabulary.pattern),
                      unicode, word(vocabulary.rule), vocabulary.whole_pieces ? "yes" : "no",
                      vocabulary.end_of_text ? std::to_string(*vocabulary.end_of_text) : "none");
  if (vocabulary.nfc)
    text += "normalize nfc\n";
  if (vocabulary.characters)
    text += fmt::format("prefix {}\n", word(vocabulary.prefix));
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

std::string text_of(const Vocabulary& vocabulary, std::string_view unicode) {
  std::string text = tokens_text(vocabulary, unicode);
  if (vocabulary.begin_of_text)
    text += fmt::format("begin_of_text {}\n", *vocabulary.begin_of_text);
  for (const Token end : vocabulary.ends_of_text) text += fmt::format("ends_of_text {}\n", end);
  return text;
}

}  // namespace

std::uint64_t hash_of(const Vocabulary& vocabulary) {
  return hash_bytes(tokens_text(vocabulary, unicode_version));
}

std::string to_text(const Vocabulary& vocabulary) {
  return text_of(vocabulary, unicode_version);
}

Vocabulary vocabulary_from(std::string_view text) {
  if (!text.starts_with(serialized_bpe))
    throw UserError({"serialized tokenizer"}, "it was not written by this version of trireme");
  Words words(text.substr(serialized_bpe.size()));
  Vocabulary vocabulary;
  const std::string_view pattern = words.value();
  vocabulary.characters = pattern == characters_pattern;
  if (const auto known = value_named<Pattern>(pattern))
    vocabulary.pattern = *known;
  else if (!vocabulary.characters)
    refuse(fmt::format("a pattern that is not one of {}", pattern_names()));
  const std::string_view unicode = words.value();  // when it was written; this one's counts now
  vocabulary.rule = words.named<MergeRule>();
  vocabulary.whole_pieces = words.value() == "yes";
  if (const std::string_view end = words.value(); end != "none")
    vocabulary.end_of_text = static_cast<Token>(number(end));
  if (words.next_is("normalize"))
    vocabulary.nfc = words.value() == "nfc";
  if (vocabulary.characters)
    vocabulary.prefix = words.named<SpacePrefix>();
  read_tokens(words, vocabulary);
  read_merges(words, vocabulary);
  read_roles(words, vocabulary);
  if (text_of(vocabulary, unicode) != text)
    refuse("a line is missing, or one is too many or not as it should be");
  return vocabulary;
}

}  // namespace trireme::text
