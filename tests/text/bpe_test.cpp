// SPDX-License-Identifier: Apache-2.0
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

#include "text/merging.hpp"
#include "text/vocabularies.hpp"

namespace trireme::text {
namespace {

using testing::ElementsAre;

// Ids of bytes in GPT-2: a 64, b 65, c 66, d 67, space 220, new line 198.
TEST(Bpe, MergesTheLowestRankFirstAndTheLeftmostOfEquals) {
  const auto tokenizer =
      make_tokenizer(vocabulary_of({{"a", "b"}, {"b", "c"}, {"a", "a"}, {"aa", "a"}}), "test");
  EXPECT_THAT(encoded(*tokenizer, "abc"), ElementsAre(256, 66));
  EXPECT_THAT(encoded(*tokenizer, "bcb"), ElementsAre(257, 65));
  EXPECT_THAT(encoded(*tokenizer, "aaaaa"), ElementsAre(258, 259));
  EXPECT_THAT(encoded(*tokenizer, " \n"), ElementsAre(220, 198));
  EXPECT_THAT(encoded(*tokenizer, ""), testing::IsEmpty());
}

TEST(Bpe, KnowsItsVocabulary) {
  const auto tokenizer = make_tokenizer(vocabulary_of({{"a", "b"}}), "test");
  EXPECT_EQ(tokenizer->vocabulary(), 258);
  EXPECT_EQ(tokenizer->end_of_text(), 257);
  EXPECT_EQ(tokenizer->kind(), "bpe");
  EXPECT_EQ(tokenizer->bytes_of(256), 2);
  EXPECT_EQ(tokenizer->bytes_of(257), 0);
  EXPECT_EQ(decoded(*tokenizer, {256, 257, 66}), "abc");
  EXPECT_THROW(static_cast<void>(tokenizer->bytes_of(258)), ContractError);
  EXPECT_THROW(decoded(*tokenizer, {-1}), ContractError);
}

TEST(Bpe, SpecialTokensInATextAreOrdinaryText) {
  const auto tokenizer = make_tokenizer(vocabulary_of({{"<", "|"}}), "test");
  const auto tokens = encoded(*tokenizer, "<|endoftext|>");
  EXPECT_THAT(tokens, testing::Not(testing::Contains(257)));
  EXPECT_EQ(decoded(*tokenizer, tokens), "<|endoftext|>");
}

TEST(Bpe, ATokenThatNoMergeReachesIsNotAShortcut) {
  // Merging makes (ab)c from abc before bc can exist, so abc as a + bc is never made.
  Vocabulary vocabulary = vocabulary_of({{"a", "b"}, {"b", "c"}, {"a", "bc"}});
  const auto listed = make_tokenizer(vocabulary, "test");
  EXPECT_THAT(encoded(*listed, "abc"), ElementsAre(256, 66));
  vocabulary.whole_pieces = true;
  EXPECT_THAT(encoded(*make_tokenizer(vocabulary, "test"), "abc"), ElementsAre(258));
  vocabulary.whole_pieces = false;
  vocabulary.rule = MergeRule::ranked;
  vocabulary.merges.clear();
  const auto ranked = make_tokenizer(vocabulary, "test");
  EXPECT_THAT(encoded(*ranked, "abc"), ElementsAre(258));
  EXPECT_NE(listed->hash(), ranked->hash());
}

TEST(Bpe, IsReadBackFromItsText) {
  Vocabulary vocabulary = vocabulary_of({{"a", "b"}, {" ", "ab"}});
  vocabulary.pattern = Pattern::nanochat;
  vocabulary.tokens.push_back({});  // an id without a token
  const auto tokenizer = make_tokenizer(vocabulary, "test");
  EXPECT_EQ(vocabulary_from(tokenizer->serialized()), vocabulary);
  const auto again = tokenizer_from(tokenizer->serialized());
  EXPECT_EQ(again->hash(), tokenizer->hash());
  EXPECT_EQ(encoded(*again, "ab ab1"), encoded(*tokenizer, "ab ab1"));
  const std::string text = tokenizer->serialized();
  for (std::size_t cut = 0; cut < text.size(); cut += 7)
    EXPECT_THROW(tokenizer_from(text.substr(0, cut)), UserError);
  EXPECT_THROW(tokenizer_from(text + "1 2\n"), UserError);
}

TEST(Bpe, RefusesWhatIsNoByteLevelVocabulary) {
  const auto findings_of = [](const Vocabulary& vocabulary) -> std::string {
    try {
      make_tokenizer(vocabulary, "v.json");
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  Vocabulary vocabulary = vocabulary_of({{"a", "b"}});
  vocabulary.tokens[64].bytes = "";
  EXPECT_THAT(findings_of(vocabulary), testing::HasSubstr("no token for the byte 0x61"));
  vocabulary = vocabulary_of({{"a", "b"}, {"a", "b"}});
  EXPECT_THAT(findings_of(vocabulary),
              testing::HasSubstr("tokens 256 and 257 have the same bytes"));
  vocabulary = vocabulary_of({{"a", "b"}});
  vocabulary.merges.emplace_back(64, 66);
  EXPECT_THAT(findings_of(vocabulary), testing::HasSubstr("merge 2 makes ac"));
  vocabulary.merges.back() = {64, 65};
  EXPECT_THAT(findings_of(vocabulary), testing::HasSubstr("merge 2 occurs twice"));
}

std::string random_bytes(std::mt19937& draw, std::size_t size, int letters) {
  std::string text;
  for (std::size_t i = 0; i < size; ++i)
    text.push_back(static_cast<char>(letters == 256 ? draw() % 256 : 'a' + draw() % 3));
  return text;
}

TEST(Bpe, EveryByteSequenceComesBack) {
  const auto tokenizer = make_tokenizer(
      vocabulary_of({{"a", "b"}, {"\xc3", "\xa9"}, {"ab", "c"}, {"\x80", "\x80"}}), "test");
  std::mt19937 draw(7);
  for (std::size_t size = 0; size < 400; ++size)
    for (const int letters : {3, 256}) {
      const std::string text = random_bytes(draw, size, letters);
      EXPECT_EQ(decoded(*tokenizer, encoded(*tokenizer, text)), text);
    }
}

/// Merges by searching the whole piece again for each merge, as the header defines it.
std::vector<Token> merged_simply(const MergeTable& table, std::vector<Token> tokens) {
  for (;;) {
    const MergeTable::Merge* best = nullptr;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i)
      if (const auto* found = table.find(tokens[i], tokens[i + 1]);
          found != nullptr && (best == nullptr || found->rank < best->rank)) {
        best = found;
        at = i;
      }
    if (best == nullptr)
      return tokens;
    tokens[at] = best->token;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST(Merging, ShortAndLongPiecesAreMergedAlike) {
  std::mt19937 draw(3);
  MergeTable table(60);
  for (Token made = 3, rank = 0; made < 40; ++made)  // made of earlier tokens, in mixed order
    table.add(static_cast<Token>(draw() % static_cast<unsigned>(made)),
              static_cast<Token>(draw() % static_cast<unsigned>(made)),
              static_cast<std::uint32_t>(rank++ * 17 % 37), made);
  for (std::size_t size = 1; size < 3 * short_piece; ++size) {
    std::vector<Token> tokens(size);
    for (Token& token : tokens) token = static_cast<Token>(draw() % 3);
    const auto expected = merged_simply(table, tokens);
    tokens.resize(table.merge(tokens));
    EXPECT_EQ(tokens, expected) << size << " bytes";
  }
}

TEST(Merging, AMegabyteOfOneLetterTakesNoTime) {
  std::vector<std::string> powers{"a"};
  std::vector<std::pair<std::string_view, std::string_view>> merges;
  for (int i = 0; i < 9; ++i) powers.push_back(powers.back() + powers.back());
  for (int i = 0; i < 9; ++i)
    merges.emplace_back(powers[static_cast<std::size_t>(i)], powers[static_cast<std::size_t>(i)]);
  const auto tokenizer = make_tokenizer(vocabulary_of(merges), "test");
  const std::string text(std::size_t{1} << 20U, 'a');  // n^2 would exceed the time-out
  EXPECT_THAT(encoded(*tokenizer, text), testing::AllOf(testing::SizeIs(2048), testing::Each(264)));
}

TEST(Bpe, ThreadsAndTokenizersShareTheCacheWithoutMixingTokens) {
  const auto one = make_tokenizer(vocabulary_of({{"a", "b"}}), "one");
  const auto two = make_tokenizer(vocabulary_of({{"b", "a"}}), "two");
  const std::string rulers(100, '-');
  const std::string text = "abab " + rulers + " abab abababababababababababababababab";
  const auto of_one = encoded(*one, text), of_two = encoded(*two, text);
  EXPECT_NE(of_one, of_two);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (std::size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i)
        wrong[t] +=
            (encoded(*one, text) == of_one ? 0 : 1) + (encoded(*two, text) == of_two ? 0 : 1);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, testing::Each(0));
}

}  // namespace
}  // namespace trireme::text
