// SPDX-License-Identifier: Apache-2.0
#include "model/sampler.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "model/small_model.hpp"

namespace trireme::model::testing {
namespace {

TEST(DrawToken, TemperatureZeroTakesTheLargestAndTheLowestOfEquals) {
  EXPECT_EQ(draw_token(std::vector<float>{0.5F, 2.0F, -1.0F}, 0, 123, 456), 1);
  EXPECT_EQ(draw_token(std::vector<float>{0.5F, 2.0F, 2.0F}, 0, ~0U, ~0U), 1);
}

TEST(DrawToken, EndsOfTheRandomWordReachTheEndsOfTheAlphabet) {
  const std::vector<float> even(4, -3.0F);
  EXPECT_EQ(draw_token(even, 1, 0, 0), 0);
  EXPECT_EQ(draw_token(even, 1, 0x3fffffffU, ~0U), 0);
  EXPECT_EQ(draw_token(even, 1, 0x40000000U, 0), 1);
  EXPECT_EQ(draw_token(even, 1, ~0U, ~0U), 3);
}

TEST(DrawToken, FrequenciesFollowSoftmaxAtTheTemperature) {
  const std::vector<float> logits = {0.0F, 1.0F, -std::numeric_limits<float>::infinity(), 2.0F};
  for (const double temperature : {0.5, 1.0, 4.0}) {
    std::vector<double> share(4);
    const int n = 20000;
    for (int i = 0; i < n; ++i) {
      const auto words = philox(RandomKey::of(3, Draw::text), static_cast<std::uint64_t>(i));
      share[static_cast<std::size_t>(draw_token(logits, temperature, words.w[0], words.w[1]))] +=
          1.0 / n;
    }
    double total = 0;
    for (const float logit : logits) total += std::exp(static_cast<double>(logit) / temperature);
    for (std::size_t i = 0; i < 4; ++i)  // five standard errors of a share
      EXPECT_NEAR(share[i], std::exp(static_cast<double>(logits[i]) / temperature) / total, 0.018)
          << "token " << i << " at " << temperature;
  }
}

TEST(DrawToken, ADivergedModelIsTheUsersToHear) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_THROW(draw_token(std::vector<float>{0.0F, nan}, 1, 0, 0), UserError);
  EXPECT_THROW(draw_token(std::vector<float>{nan, 0.0F}, 0, 0, 0), UserError);
  EXPECT_THROW(draw_token(std::vector<float>{inf, 0.0F}, 1, 0, 0), UserError);
  EXPECT_THROW(draw_token(std::vector<float>{-inf, -inf}, 1, 0, 0), UserError);
}

class Generate : public ::testing::Test {
 protected:
  std::vector<std::int32_t> text(const std::vector<std::int32_t>& prompt,
                                 const SampleRequest& request) {
    return generate(model.gpt, model.device, prompt, request, model.hooks, *model.stream);
  }
  SmallModel model{small_shape()};
};

TEST_F(Generate, TheSameSeedGivesTheSameTextAndAnotherSeedAnother) {
  const SampleRequest request{.count = 30, .temperature = 1.0, .seed = 5};
  const auto first = text({1, 2}, request);
  ASSERT_EQ(first.size(), 30U);
  EXPECT_EQ(text({1, 2}, request), first);
  EXPECT_NE(text({1, 2}, {.count = 30, .temperature = 1.0, .seed = 6}), first);
  // A longer text begins with the shorter one.
  const auto longer = text({1, 2}, {.count = 40, .temperature = 1.0, .seed = 5});
  EXPECT_TRUE(std::equal(first.begin(), first.end(), longer.begin()));
  for (const std::int32_t token : longer) EXPECT_TRUE(token >= 0 && token < 11);
}

TEST_F(Generate, TheWindowKeepsTheNewestTokens) {
  std::vector<std::int32_t> all = {4, 9, 1};
  const auto made = text(all, {.count = 12, .temperature = 0});
  for (const std::int32_t token : made) {
    const std::size_t length = std::min<std::size_t>(all.size(), 5);
    const auto logits = model.next_logits({all.end() - static_cast<long>(length), all.end()});
    EXPECT_EQ(token, std::max_element(logits.begin(), logits.end()) - logits.begin());
    all.push_back(token);
  }
  // A prompt longer than the context counts with its end.
  EXPECT_EQ(text({1, 2, 3, 4, 5, 6, 7}, {.count = 4, .temperature = 0}),
            text({3, 4, 5, 6, 7}, {.count = 4, .temperature = 0}));
}

TEST_F(Generate, TokensBeyondTheAlphabetAreNeverDrawn) {
  bool beyond = false;
  for (const std::int32_t token : text({1}, {.count = 60, .temperature = 3, .seed = 1}))
    beyond = beyond || token >= 4;
  EXPECT_TRUE(beyond) << "the test proves nothing";
  for (const std::int32_t token :
       text({1}, {.count = 60, .temperature = 3, .seed = 1, .alphabet = 4}))
    EXPECT_LT(token, 4);
}

TEST_F(Generate, RefusesAnEmptyPromptAndForeignTokens) {
  EXPECT_THROW(text({}, {.count = 1}), ContractError);
  EXPECT_THROW(text({11}, {.count = 1}), ContractError);
  EXPECT_THROW(text({1}, {.count = 1, .alphabet = 12}), ContractError);
}

}  // namespace
}  // namespace trireme::model::testing
