// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.hpp"

#include "tokens/token_stream.hpp"

namespace trireme::tokens {
namespace {

std::vector<std::int32_t> read(const TokenStream& stream, std::int64_t begin, std::size_t count) {
  std::vector<std::int32_t> tokens(count);
  stream.read(begin, tokens);
  return tokens;
}

TEST(SyntheticTokens, AnyRangeIsAPieceOfTheWhole) {
  const SyntheticTokens stream(1000, 256, 7);
  const auto whole = read(stream, 0, 1000);
  for (std::int64_t begin = 0; begin < 960; begin += 7) {
    const auto piece = read(stream, begin, 40);
    EXPECT_TRUE(std::equal(piece.begin(), piece.end(), whole.begin() + begin)) << begin;
  }
  EXPECT_THROW(read(stream, 990, 11), ContractError);
}

TEST(SyntheticTokens, StayInTheVocabularyAndFollowTheSeed) {
  for (const std::int64_t vocabulary : {1, 2, 255, 50257}) {
    const SyntheticTokens stream(20'000, vocabulary, 7);
    for (const auto token : read(stream, 0, 20'000)) {
      ASSERT_GE(token, 0);
      ASSERT_LT(token, vocabulary);
    }
  }
  EXPECT_NE(read(SyntheticTokens(500, 256, 1), 0, 500), read(SyntheticTokens(500, 256, 2), 0, 500));
  EXPECT_NE(SyntheticTokens(500, 256, 1).content_hash(),
            SyntheticTokens(500, 256, 2).content_hash());
}

// With a vocabulary so large that a token identifies its place in the book, the previous token
// determines the next inside a phrase. Only the choice of a phrase has entropy.
TEST(SyntheticTokens, TheTokenBeforePredictsTheNext) {
  const std::int64_t size = 64'000;
  const auto tokens = read(SyntheticTokens(size, 1 << 24, 7), 0, static_cast<std::size_t>(size));
  std::map<std::int32_t, std::map<std::int32_t, double>> next;
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) ++next[tokens[i]][tokens[i + 1]];
  double nats = 0;
  for (const auto& [token, followers] : next) {
    double total = 0;
    for (const auto& [follower, count] : followers) total += count;
    for (const auto& [follower, count] : followers) nats -= count * std::log(count / total);
  }
  EXPECT_NEAR(nats / static_cast<double>(size), std::log(64.0) / 16, 0.04);
  EXPECT_EQ(std::set(tokens.begin(), tokens.end()).size(), 1024U);
}

}  // namespace
}  // namespace trireme::tokens
