// SPDX-License-Identifier: Apache-2.0
#include "base/random.hpp"

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <utility>

#include <gtest/gtest.h>

namespace trireme {
namespace {

constexpr std::uint32_t ones = 0xffffffffU;

std::array<std::uint32_t, 4> words(RandomKey key, std::uint64_t counter, std::uint64_t high) {
  const Words4 four = philox(key, counter, high);
  return {four.w[0], four.w[1], four.w[2], four.w[3]};
}

// The three known answers for philox4x32-10 that its authors publish with the generator: counter
// and key all zeros, all ones, and the digits of pi.
TEST(PhiloxTest, KnownAnswers) {
  EXPECT_EQ(words({0, 0}, 0, 0),
            (std::array<std::uint32_t, 4>{0x6627e8d5U, 0xe169c58dU, 0xbc57ac4cU, 0x9b00dbd8U}));
  EXPECT_EQ(words({ones, ones}, ~0ULL, ~0ULL),
            (std::array<std::uint32_t, 4>{0x408f276dU, 0x41c83b0eU, 0xa20bc7c6U, 0x6d5451fdU}));
  EXPECT_EQ(words({0xa4093822U, 0x299f31d0U}, 0x85a308d3243f6a88ULL, 0x0370734413198a2eULL),
            (std::array<std::uint32_t, 4>{0xd16cfe09U, 0x94fdccebU, 0x5001e420U, 0x24126ea1U}));
}

TEST(PhiloxTest, IsAConstantExpression) {
  static_assert(philox({0, 0}, 0).w[0] == 0x6627e8d5U);
  static_assert(philox({0, 0}, 1).w[0] != 0x6627e8d5U);
}

TEST(RandomKeyTest, PurposesAndSeedsNeverShareASequence) {
  std::set<std::pair<std::uint32_t, std::uint32_t>> keys;
  std::size_t made = 0;
  for (const std::uint64_t seed : {0ULL, 1ULL, 1337ULL, 1ULL << 32U, ~0ULL})
    for (const Draw draw :
         {Draw::initialize, Draw::dropout, Draw::sample_order, Draw::text, Draw::synthetic}) {
      const RandomKey key = RandomKey::of(seed, draw);
      keys.insert({key.low, key.high});
      ++made;
    }
  EXPECT_EQ(keys.size(), made);
}

TEST(UniformTest, StaysBelowOne) {
  EXPECT_EQ(uniform(0), 0.0F);
  EXPECT_EQ(uniform(ones), 1.0F - 0x1p-24F);
  EXPECT_EQ(uniform(1U << 31U), 0.5F);
}

TEST(NormalTest, HasTheMomentsOfTheNormalDistribution) {
  const RandomKey key = RandomKey::of(1, Draw::initialize);
  constexpr int count = 100000;
  double sum = 0, squares = 0, fourth = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const Words4 four = philox(key, i);
    const double x = normal(four.w[0], four.w[1]);
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  // Five standard errors: 1/sqrt(n), sqrt(2/n), sqrt(96/n).
  EXPECT_NEAR(sum / count, 0, 5 / std::sqrt(count));
  EXPECT_NEAR(squares / count, 1, 5 * std::sqrt(2.0 / count));
  EXPECT_NEAR(fourth / count, 3, 5 * std::sqrt(96.0 / count));
}

TEST(NormalTest, IsFiniteAtTheEnds) {
  for (const std::uint32_t a : {0U, ones})
    for (const std::uint32_t b : {0U, ones}) EXPECT_TRUE(std::isfinite(normal(a, b)));
  EXPECT_NEAR(normal(0, 0), std::sqrt(2 * 33 * std::log(2.0)), 1e-6);
}

TEST(BelowTest, CoversTheRangeAndNothingElse) {
  EXPECT_EQ(below(10, 0, 0), 0U);
  EXPECT_EQ(below(10, ones, ones), 9U);
  EXPECT_EQ(below(1, ones, ones), 0U);
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(below(most, ones, ones), most - 1);
  std::array<int, 7> seen{};
  for (std::uint64_t i = 0; i < 7000; ++i) {
    const Words4 four = philox({1, 2}, i);
    ++seen.at(below(7, four.w[0], four.w[1]));
  }
  for (const int count : seen) EXPECT_NEAR(count, 1000, 5 * std::sqrt(1000));
}

}  // namespace
}  // namespace trireme
