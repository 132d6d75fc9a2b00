// SPDX-License-Identifier: Apache-2.0
#include "text/pieces.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::text {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Pieces = std::vector<std::string>;

Pieces pieces(Pattern pattern, std::string_view text) {
  Pieces all;
  split(pattern, text, [&](std::string_view piece) { all.emplace_back(piece); });
  return all;
}

// The vectors of the first five tests were computed with Python's `regex`.
TEST(Gpt2, SplitsEnglish) {
  EXPECT_THAT(
      pieces(Pattern::gpt2, "Hello've world123   how's are you!!!?"),
      ElementsAre("Hello", "'ve", " world", "123", "  ", " how", "'s", " are", " you", "!!!?"));
  EXPECT_THAT(pieces(Pattern::gpt2, "HOW'S it   "), ElementsAre("HOW", "'", "S", " it", "   "));
  EXPECT_THAT(pieces(Pattern::gpt2, "  'tis"), ElementsAre(" ", " '", "tis"));
  EXPECT_THAT(pieces(Pattern::gpt2, "don''t"), ElementsAre("don", "''", "t"));
  EXPECT_THAT(pieces(Pattern::gpt2, ""), IsEmpty());
}

TEST(Gpt2, SplitsLines) {
  EXPECT_THAT(pieces(Pattern::gpt2, "a\n\n  b\n"), ElementsAre("a", "\n\n ", " b", "\n"));
  EXPECT_THAT(pieces(Pattern::gpt2, "\r\n\tif (x)"),
              ElementsAre("\r\n", "\t", "if", " (", "x", ")"));
}

TEST(Gpt2, KnowsUnicode) {
  EXPECT_THAT(pieces(Pattern::gpt2, "x\u00a0y \u4f60\u597d 12\u00bd"),
              ElementsAre("x", "\u00a0", "y", " \u4f60\u597d", " 12\u00bd"));
  EXPECT_THAT(pieces(Pattern::gpt2, "e\u0301te\u0301"), ElementsAre("e", "\u0301", "te", "\u0301"));
}

// The vectors were computed with `regex`; those of DeepSeek pass by pass.
TEST(CasedFamily, EndsWordsAtCapitalsAndKeepsContractions) {
  EXPECT_THAT(pieces(Pattern::o200k, "HelloWorld don't HTTPServer x"),
              ElementsAre("Hello", "World", " don't", " HTTPServer", " x"));
  EXPECT_THAT(pieces(Pattern::o200k, "\u4e2dA 12345//\n"),
              ElementsAre("\u4e2d", "A", " ", "123", "45", "//\n"));
  EXPECT_THAT(pieces(Pattern::o200k, "e\u0301t ABC's"), ElementsAre("e\u0301t", " ABC's"));
  EXPECT_THAT(pieces(Pattern::tekken, "HelloWorld don't 12"),
              ElementsAre("Hello", "World", " don", "'t", " ", "1", "2"));
}

TEST(DeepSeek, SplitsNumbersThenEastAsianThenTheRest) {
  EXPECT_THAT(pieces(Pattern::deepseek, "word1234 \u4f60\u597dabc #tag, x!!\n\n  y"),
              ElementsAre("word", "123", "4", " ", "\u4f60\u597d", "abc", " #", "tag", ",", " x",
                          "!!\n\n", " ", " y"));
  EXPECT_THAT(pieces(Pattern::deepseek, "\x01\x02x\x03 1"),
              ElementsAre("\x01", "\x02x", "\x03", " ", "1"));
}

TEST(SmolLm, SplitsNumbersThenAsGpt2) {
  EXPECT_THAT(pieces(Pattern::smollm, "a  12 b's"), ElementsAre("a", "  ", "1", "2", " b", "'s"));
}

TEST(Gpt4Family, PutsOneCharacterBeforeAWord) {
  for (const Pattern pattern : {Pattern::cl100k, Pattern::llama3, Pattern::nanochat})
    EXPECT_THAT(pieces(pattern, "\r\n\tif (x)"), ElementsAre("\r\n", "\tif", " (", "x", ")"));
  EXPECT_THAT(pieces(Pattern::llama3, "HOW'S (it\u00a0is)"),
              ElementsAre("HOW", "'S", " (", "it", "\u00a0is", ")"));
}

TEST(Gpt4Family, DiffersInDigitsAndInTheWhiteSpaceAtTheEnd) {
  EXPECT_THAT(pieces(Pattern::cl100k, "12345"), ElementsAre("123", "45"));
  EXPECT_THAT(pieces(Pattern::llama3, "12345"), ElementsAre("123", "45"));
  EXPECT_THAT(pieces(Pattern::nanochat, "12345"), ElementsAre("12", "34", "5"));
  EXPECT_THAT(pieces(Pattern::cl100k, "a \n  "), ElementsAre("a", " \n  "));
  EXPECT_THAT(pieces(Pattern::llama3, "a \n  "), ElementsAre("a", " \n", "  "));
  EXPECT_THAT(pieces(Pattern::nanochat, "a.\n\n  b"), ElementsAre("a", ".\n\n", " ", " b"));
}

TEST(Gpt4Family, TheLongSIsAnSWhenCaseIsIgnored) {
  EXPECT_THAT(pieces(Pattern::llama3, "it'\u017fo"), ElementsAre("it", "'\u017f", "o"));
  EXPECT_THAT(pieces(Pattern::gpt2, "it'\u017fo"), ElementsAre("it", "'", "\u017fo"));
}

TEST(Pieces, AByteOutsideOfUtf8IsACharacterThatIsNoLetter) {
  EXPECT_THAT(pieces(Pattern::gpt2, "a\xff\xfe b"), ElementsAre("a", "\xff\xfe", " b"));
  // One such byte joins the following word; two form a separate piece.
  EXPECT_THAT(pieces(Pattern::llama3,
                     "1\xff"
                     "b"),
              ElementsAre("1",
                          "\xff"
                          "b"));
  EXPECT_THAT(pieces(Pattern::llama3,
                     "1\xff\xff"
                     "b"),
              ElementsAre("1", "\xff\xff", "b"));
  // Overlong forms, surrogates, beyond the last code point, cut at the end: single bytes.
  for (const std::string_view bad : {"\xc1\x81", "\xe0\x81\x81", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                     "\xf0\x81\x81\x81", "\xe4\xbd", "\x80"})
    EXPECT_THAT(pieces(Pattern::gpt2, "a" + std::string(bad)), ElementsAre("a", std::string(bad)));
}

TEST(Pieces, NamesAndExpressionsAreReadBack) {
  for (const Pattern pattern :
       {Pattern::gpt2, Pattern::cl100k, Pattern::llama3, Pattern::nanochat}) {
    EXPECT_EQ(value_named<Pattern>(word(pattern)), pattern);
    EXPECT_EQ(pattern_of_expressions(expressions_of(pattern)), pattern);
  }
  EXPECT_FALSE(value_named<Pattern>("gpt3"));
  EXPECT_FALSE(pattern_of_expressions({"\\s+"}));
}

// Letters of one to four bytes, other characters after them, and bytes that are not UTF-8.
const std::string mixed =
    "It's 12,5 \u00e9t\u00e9s\u4f60\u597d\u3002 \U00010400\U00010401!\xe4\xbd"
    "x\xff\xc3\xa9\xa9 end\n\n  ";

TEST(NextCut, APieceEndsThereUnderEveryPattern) {
  for (const Pattern pattern :
       {Pattern::gpt2, Pattern::cl100k, Pattern::llama3, Pattern::nanochat}) {
    const Pieces whole = pieces(pattern, mixed);
    for (std::size_t from = 0; from <= mixed.size(); ++from) {
      const std::size_t cut = next_cut(mixed, from, true);
      ASSERT_GE(cut, from);
      Pieces parts = pieces(pattern, mixed.substr(0, cut));
      for (const auto& piece : pieces(pattern, mixed.substr(cut))) parts.push_back(piece);
      EXPECT_EQ(parts, whole) << "cut at " << cut;
    }
  }
}

TEST(NextCut, DoesNotDependOnTheWindow) {
  for (std::size_t from = 4; from <= mixed.size(); ++from)
    for (std::size_t end = from; end <= mixed.size(); ++end) {
      const std::size_t expected = next_cut(mixed, from, true);
      const std::size_t cut =
          next_cut(std::string_view(mixed).substr(from - 4, end - from + 4), 4, false) + from - 4;
      if (cut != end) {
        EXPECT_EQ(cut, expected);
      } else {
        EXPECT_GT(expected + 4, end);
      }
    }
}

}  // namespace
}  // namespace trireme::text
