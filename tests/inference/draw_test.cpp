// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/random.hpp"

#include "inference/generate.hpp"

namespace trireme::inference {
namespace {

TEST(DrawToken, TemperatureZeroTakesTheLargestAndTheLowestOfEquals) {
  EXPECT_EQ(draw_token(std::vector<float>{0.5F, 2.0F, -1.0F}, {.temperature = 0}, 123, 456), 1);
  EXPECT_EQ(draw_token(std::vector<float>{0.5F, 2.0F, 2.0F}, {.temperature = 0}, ~0U, ~0U), 1);
}

TEST(DrawToken, EndsOfTheRandomWordReachTheEndsOfTheAlphabet) {
  const std::vector<float> even(4, -3.0F);
  EXPECT_EQ(draw_token(even, {}, 0, 0), 0);
  EXPECT_EQ(draw_token(even, {}, 0x3fffffffU, ~0U), 0);
  EXPECT_EQ(draw_token(even, {}, 0x40000000U, 0), 1);
  EXPECT_EQ(draw_token(even, {}, ~0U, ~0U), 3);
}

TEST(DrawToken, FrequenciesFollowSoftmaxAtTheTemperature) {
  const std::vector<float> logits = {0.0F, 1.0F, -std::numeric_limits<float>::infinity(), 2.0F};
  for (const double temperature : {0.5, 1.0, 4.0}) {
    std::vector<double> share(4);
    const int n = 20000;
    for (int i = 0; i < n; ++i) {
      const auto words = philox(RandomKey::of(3, Draw::text), static_cast<std::uint64_t>(i));
      share[static_cast<std::size_t>(
          draw_token(logits, {.temperature = temperature}, words.w[0], words.w[1]))] += 1.0 / n;
    }
    double total = 0;
    for (const float logit : logits) total += std::exp(static_cast<double>(logit) / temperature);
    for (std::size_t i = 0; i < 4; ++i)  // five standard errors of a share
      EXPECT_NEAR(share[i], std::exp(static_cast<double>(logits[i]) / temperature) / total, 0.018)
          << "token " << i << " at " << temperature;
  }
}

TEST(DrawToken, ADivergedModelIsAUserError) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_THROW(draw_token(std::vector<float>{0.0F, nan}, {}, 0, 0), UserError);
  EXPECT_THROW(draw_token(std::vector<float>{nan, 0.0F}, {.temperature = 0}, 0, 0), UserError);
  EXPECT_THROW(draw_token(std::vector<float>{inf, 0.0F}, {}, 0, 0), UserError);
  EXPECT_THROW(draw_token(std::vector<float>{-inf, -inf}, {}, 0, 0), UserError);
}

/// The tokens that are ever drawn, and the share of each in `count` evenly spread words.
std::vector<double> shares(const std::vector<float>& logits, const Distribution& distribution) {
  std::vector<double> share(logits.size());
  constexpr std::uint32_t count = 4096;
  for (std::uint32_t i = 0; i < count; ++i)
    share[static_cast<std::size_t>(draw_token(logits, distribution, i << 20U, 0))] += 1.0 / count;
  return share;
}

/// Probabilities 1/16, 1/2, 1/8, 1/4, 1/16.
const std::vector<float> halves = {0.0F, 3 * 0.6931472F, 0.6931472F, 2 * 0.6931472F, 0.0F};

void expect_shares(const Distribution& distribution, const std::vector<double>& expected) {
  const std::vector<double> got = shares(halves, distribution);
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(got[i], expected[i], 1e-3)
        << "token " << i << ", top_k " << distribution.top_k << ", top_p " << distribution.top_p;
}

TEST(DrawToken, TopKKeepsTheMostLikelyAndTheLowerOfEquals) {
  expect_shares({.top_k = 1}, {0, 1, 0, 0, 0});
  expect_shares({.top_k = 2}, {0, 2.0 / 3, 0, 1.0 / 3, 0});
  expect_shares({.top_k = 4}, {1.0 / 15, 8.0 / 15, 2.0 / 15, 4.0 / 15, 0});
  expect_shares({.top_k = 5}, {1.0 / 16, 0.5, 1.0 / 8, 0.25, 1.0 / 16});
  expect_shares({.top_k = 99}, {1.0 / 16, 0.5, 1.0 / 8, 0.25, 1.0 / 16});
}

TEST(DrawToken, TopPKeepsTheFewestThatReachIt) {
  expect_shares({.top_p = 1e-9}, {0, 1, 0, 0, 0});
  expect_shares({.top_p = 0.45}, {0, 1, 0, 0, 0});
  expect_shares({.top_p = 0.7}, {0, 2.0 / 3, 0, 1.0 / 3, 0});
  expect_shares({.top_p = 0.87}, {0, 4.0 / 7, 1.0 / 7, 2.0 / 7, 0});
  expect_shares({.top_p = 0.93}, {1.0 / 15, 8.0 / 15, 2.0 / 15, 4.0 / 15, 0});
  // Of the tokens that top_k leaves: 2/3 and 1/3.
  expect_shares({.top_k = 2, .top_p = 0.6}, {0, 1, 0, 0, 0});
  // After the temperature: at 1/2, 4/5 and 1/5 of the two most likely.
  expect_shares({.temperature = 0.5, .top_k = 2}, {0, 0.8, 0, 0.2, 0});
}

TEST(DrawToken, TopPOfManyTokensSortsNoMoreThanItMust) {
  std::vector<float> even(1000, 0.5F);
  const auto drawn = shares(even, {.top_p = 0.3});
  for (std::size_t i = 0; i < even.size(); ++i) EXPECT_EQ(drawn[i] > 0, i < 300) << i;
}

TEST(DrawToken, RefusesWhatIsNoDistribution) {
  for (const Distribution& bad : {Distribution{.temperature = -1}, Distribution{.top_k = -1},
                                  Distribution{.top_p = 0}, Distribution{.top_p = 1.5}})
    EXPECT_THROW(draw_token(halves, bad, 0, 0), ContractError);
}

}  // namespace
}  // namespace trireme::inference
