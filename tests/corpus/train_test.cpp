// SPDX-License-Identifier: Apache-2.0
#include "corpus/train.hpp"

#include <algorithm>
#include <map>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

#include "text/vocabularies.hpp"
#include "tokens/scratch.hpp"

namespace trireme::corpus {
namespace {

using testing::ElementsAre;
using testing::Pair;
using WriteTokenizer = tokens::Scratch;
using Counts = std::map<std::string, std::uint64_t>;

Counts counts_of(const PieceCounts& counts) {
  Counts all;
  counts.for_each([&](std::string_view piece, std::uint64_t count, std::uint64_t) {
    all[std::string(piece)] = count;
  });
  return all;
}
void add(PieceCounts& counts, std::string_view piece) {
  counts.add(piece, piece.data() + piece.size());
}

TEST(Train, MergesTheLargestCountAndOfEqualsTheSmallerPair) {
  // By hand: aa occurs 4 times, then ab and (aa)a twice each; the smaller pair, (64, 65), is merged
  // before (256, 64).
  const auto vocabulary = train_vocabulary(
      {{"aaabdaaabac", 1}}, {.vocabulary = 260, .special_tokens = {"<|endoftext|>"}});
  EXPECT_THAT(vocabulary.merges, ElementsAre(Pair(64, 64), Pair(64, 65), Pair(256, 257)));
  EXPECT_EQ(vocabulary.tokens[258].bytes, "aaab");
  EXPECT_EQ(vocabulary.end_of_text, 259);
  EXPECT_THAT(text::encoded(*text::make_tokenizer(vocabulary, "test"), "aaabdaaabac"),
              ElementsAre(258, 67, 258, 64, 66));
}

TEST(Train, PassesOverAPairWhoseBytesAreAToken) {
  const auto vocabulary = train_vocabulary({{"-----", 10}, {"---", 3}, {"--------", 2}},
                                           {.vocabulary = 264, .special_tokens = {}});
  for (std::size_t a = 256; a < vocabulary.tokens.size(); ++a)
    for (std::size_t b = 256; b < a; ++b)
      EXPECT_NE(vocabulary.tokens[a].bytes, vocabulary.tokens[b].bytes);
  EXPECT_EQ(vocabulary.tokens.size(), 256 + vocabulary.merges.size());
}

TEST(Train, EndsEarlyWhenNoPairIsLeft) {
  const auto vocabulary = train_vocabulary({{"ab", 1}}, {.vocabulary = 1000, .special_tokens = {}});
  EXPECT_EQ(vocabulary.tokens.size(), 257u);
  EXPECT_FALSE(vocabulary.end_of_text);
}

TEST(PieceCounts, AreExactInSeveralPassesWhenMemoryIsShort) {
  std::mt19937 draw(5);
  std::vector<std::string> pieces;
  for (int i = 0; i < 30000; ++i)
    pieces.push_back(std::string(draw() % 40, 'x') + std::to_string(draw() % 3000));
  Counts expected;
  for (const std::string& piece : pieces) ++expected[piece];
  Counts found;
  int passes = 0;
  for (int first = 0; first < PieceCounts::classes; ++passes) {
    PieceCounts even(first, 1 << 20), odd(first, 1 << 19), sum(first, 1 << 20);
    for (std::size_t i = 0; i < pieces.size(); ++i) add(i % 2 == 0 ? even : odd, pieces[i]);
    sum.add(odd);
    sum.drop_from(even.end_class());
    sum.add_packed(even.packed(0, 100));
    sum.add_packed(even.packed(100, PieceCounts::classes));
    for (const auto& [piece, count] : counts_of(sum))
      EXPECT_TRUE(found.emplace(piece, count).second) << piece;
    ASSERT_GT(sum.end_class(), first);
    first = sum.end_class();
  }
  EXPECT_GT(passes, 2);
  EXPECT_EQ(found, expected);
}

TEST(PieceCounts, ReportWhenMemoryIsFarTooLittle) {
  PieceCounts counts(0, 40000);
  const auto fill = [&] {
    for (int i = 0; i < 1000000; ++i) add(counts, std::to_string(i));
  };
  EXPECT_THROW(fill(), UserError);
}

TEST(PieceCounts, LeaveOutWhatIsLongerThanAPieceMayBe) {
  PieceCounts counts(0, 1 << 24);
  add(counts, std::string(most_piece_bytes, 'a'));
  add(counts, std::string(most_piece_bytes + 1, 'a'));
  EXPECT_EQ(counts.size(), 1);
  EXPECT_EQ(counts.too_long(), 1);
  EXPECT_EQ(counts.pieces(), 2);
}

TEST(KeptPieces, DropByAThresholdThatOnlyTheCorpusDecides) {
  std::map<std::uint64_t, int> kept_by_parts;
  std::vector<std::vector<std::string>> results;
  for (const int parts : {1, 3, 256}) {
    KeptPieces kept(40000);
    for (int part = 0; part < parts; ++part) {
      PieceCounts counts(part * 256 / parts, 1 << 24);
      counts.drop_from((part + 1) * 256 / parts);
      for (int i = 1; i <= 300; ++i)
        for (int n = 0; n < i / 10 + 1; ++n) add(counts, "piece" + std::to_string(i));
      kept.add(counts);
    }
    std::vector<std::string> names;
    for (const CountedPiece& piece : kept.pieces()) {
      EXPECT_GE(piece.count, kept.threshold());
      names.push_back(piece.bytes);
    }
    EXPECT_GT(kept.threshold(), 1u);
    EXPECT_EQ(kept.dropped() + std::ssize(names), 300);
    std::ranges::sort(names);
    results.push_back(names);
    ++kept_by_parts[kept.threshold()];
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
  EXPECT_EQ(kept_by_parts.size(), 1u);
}

TEST_F(WriteTokenizer, IsReadBackFromEachOfItsFiles) {
  const auto vocabulary =
      train_vocabulary({{" hello", 5}, {" help", 3}, {"\xff\xfe", 2}}, {.vocabulary = 265});
  const std::string path = at("tok/en");
  write_tokenizer(path, vocabulary, "{}\n");
  EXPECT_EQ(text::load_tokenizer(path)->serialized(), text::to_text(vocabulary));
  EXPECT_EQ(text::load_tokenizer(path + "/vocab.json")->serialized(), text::to_text(vocabulary));
  EXPECT_THROW(write_tokenizer(path, vocabulary, "{}\n"), UserError);
  text::Vocabulary other = vocabulary;
  other.pattern = text::Pattern::cl100k;
  write_tokenizer(at("other"), other, "{}\n");
  EXPECT_EQ(text::load_tokenizer(at("other/tokenizer.json"))->serialized(), text::to_text(other));
}

}  // namespace
}  // namespace trireme::corpus
