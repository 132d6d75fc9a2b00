// SPDX-License-Identifier: Apache-2.0
#include "inference/generate.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "model/small_model.hpp"

namespace trireme::inference {
namespace {

using model::GptShape;
using model::testing::random_tokens;
using model::testing::small_shape;
using model::testing::SmallModel;
using Tokens = std::vector<std::int32_t>;

/// One model, used in both ways.
class GenerateTest : public ::testing::Test {
 protected:
  explicit GenerateTest(const GptShape& shape = small_shape()) : model(shape) {
    plain = std::make_unique<NextLogits>(model.gpt, model.device, model.hooks, *model.stream);
    cached = cached_in(3);
  }
  std::unique_ptr<NextLogits> cached_in(std::int64_t slots, std::int64_t positions = 0) {
    std::vector<ConstView> views;
    for (const auto& values : model.values)
      views.emplace_back(view_of(values.data(), std::ssize(values)));
    const nn::CacheSize size{slots, positions > 0 ? positions : model.shape.context};
    return std::make_unique<NextLogits>(model.device, model.shape, DType::f32, views, size,
                                        model.hooks, *model.stream);
  }
  Tokens text(const Tokens& prompt, const GenerateRules& rules, NextLogits* way = nullptr) {
    const GenerateRequest request{prompt};
    return generate(way != nullptr ? *way : *plain, {&request, 1}, rules).at(0).tokens;
  }
  SmallModel model;
  std::unique_ptr<NextLogits> plain, cached;
};

TEST(WindowBegin, IsZeroAndThenMovesByHalfAContext) {
  EXPECT_EQ(window_begin(1, 5), 0);
  EXPECT_EQ(window_begin(5, 5), 0);
  EXPECT_EQ(window_begin(6, 5), 2);
  EXPECT_EQ(window_begin(7, 5), 2);
  EXPECT_EQ(window_begin(8, 5), 4);
  EXPECT_EQ(window_begin(1025, 1024), 512);
  EXPECT_EQ(window_begin(1537, 1024), 1024);
  for (std::int64_t context = 1; context < 9; ++context)
    for (std::int64_t n = context; n < 40; ++n) {
      const std::int64_t length = n - window_begin(n, context);
      EXPECT_LE(length, context);
      EXPECT_GT(length, context / 2 - 1) << n << " tokens of a context of " << context;
    }
}

TEST(Repeats, WhenTheNewestTokensOccurThereAlready) {
  EXPECT_FALSE(repeats(Tokens{1, 2, 3}, 1));
  EXPECT_TRUE(repeats(Tokens{1, 2, 1}, 1));
  EXPECT_TRUE(repeats(Tokens{7, 7, 7}, 2));
  EXPECT_FALSE(repeats(Tokens{7, 7}, 2));
  EXPECT_TRUE(repeats(Tokens{1, 2, 3, 9, 2, 3}, 2));
  EXPECT_FALSE(repeats(Tokens{1, 2, 3, 9, 2, 3}, 3));
  EXPECT_FALSE(repeats(Tokens{1, 1, 1, 1}, 0));
}

TEST_F(GenerateTest, WithAndWithoutKeptKeysTheTextIsTheSame) {
  for (const double temperature : {0.0, 1.0}) {
    const GenerateRules rules{
        .tokens = 40, .distribution = {.temperature = temperature}, .seed = 5};
    for (const Tokens& prompt : {Tokens{1, 2}, Tokens{4, 4, 4, 4, 4}, random_tokens(17, 11, 3)})
      EXPECT_EQ(text(prompt, rules, cached.get()), text(prompt, rules));
  }
}

TEST_F(GenerateTest, TheSameSeedGivesTheSameTextAndAnotherSeedAnother) {
  const GenerateRules rules{.tokens = 30, .seed = 5};
  const Tokens first = text({1, 2}, rules);
  ASSERT_EQ(first.size(), 30U);
  EXPECT_EQ(text({1, 2}, rules), first);
  EXPECT_NE(text({1, 2}, {.tokens = 30, .seed = 6}), first);
  // A longer text begins with the shorter one.
  const Tokens longer = text({1, 2}, {.tokens = 40, .seed = 5});
  EXPECT_TRUE(std::equal(first.begin(), first.end(), longer.begin()));
  for (const std::int32_t token : longer) EXPECT_TRUE(token >= 0 && token < 11);
}

TEST_F(GenerateTest, TheWindowKeepsTheNewestTokens) {
  Tokens all = {4, 9, 1};
  const Tokens made = text(all, {.tokens = 12, .distribution = {.temperature = 0}});
  for (const std::int32_t token : made) {
    const auto logits =
        model.next_logits({all.begin() + window_begin(std::ssize(all), 5), all.end()});
    EXPECT_EQ(token, std::max_element(logits.begin(), logits.end()) - logits.begin());
    all.push_back(token);
  }
  // Only the end of a prompt that is longer than the context counts.
  EXPECT_EQ(text({1, 2, 3, 4, 5, 6, 7}, {.tokens = 4, .distribution = {.temperature = 0}}),
            text({3, 4, 5, 6, 7}, {.tokens = 4, .distribution = {.temperature = 0}}));
}

TEST_F(GenerateTest, TokensBeyondTheAlphabetAreNeverDrawn) {
  const Distribution hot{.temperature = 3};
  bool beyond = false;
  for (const std::int32_t token : text({1}, {.tokens = 60, .distribution = hot, .seed = 1}))
    beyond = beyond || token >= 4;
  EXPECT_TRUE(beyond) << "the test proves nothing";
  for (const std::int32_t token :
       text({1}, {.tokens = 60, .distribution = hot, .seed = 1, .alphabet = 4}))
    EXPECT_LT(token, 4);
}

TEST_F(GenerateTest, ATextEndsByItsRules) {
  const GenerateRules free_rules{.tokens = 40, .seed = 2};
  const Tokens whole = text({1}, free_rules);
  const GenerateRequest request{{1}};
  GenerateRules rules = free_rules;
  rules.ends_of_text = {whole[7]};
  const auto ended = generate(*cached, {&request, 1}, rules).at(0);
  EXPECT_EQ(ended.end, GenerateEnd::end_of_text);
  const auto first = std::find(whole.begin(), whole.end(), whole[7]);
  EXPECT_EQ(ended.tokens, Tokens(whole.begin(), first));
  rules.ends_of_text.clear();
  rules.repetition = 2;
  const auto repeated = generate(*cached, {&request, 1}, rules).at(0);
  EXPECT_EQ(repeated.end, GenerateEnd::repetition);
  EXPECT_TRUE(repeats(repeated.tokens, 2));
  EXPECT_FALSE(repeats(std::span(repeated.tokens).first(repeated.tokens.size() - 1), 2));
  EXPECT_EQ(repeated.tokens, Tokens(whole.begin(), whole.begin() + std::ssize(repeated.tokens)));
  EXPECT_EQ(generate(*plain, {&request, 1}, free_rules).at(0).end, GenerateEnd::length);
  EXPECT_TRUE(text({1}, {.tokens = 0}).empty());
}

class GenerateMany : public GenerateTest {
 protected:
  GenerateMany()
      : GenerateTest({.layers = 2, .heads = 2, .channels = 16, .context = 300, .vocabulary = 23}) {}
};

TEST_F(GenerateMany, WhatIsBesideATextDoesNotChangeIt) {
  std::vector<GenerateRequest> requests;
  for (std::uint64_t i = 0; i < 8; ++i)  // two texts for each prompt of 1 to 274 tokens
    requests.push_back({random_tokens(1 + 91 * static_cast<std::int64_t>(i / 2), 23, i / 2), i});
  GenerateRules rules{.tokens = 25, .seed = 3, .ends_of_text = {7, 5}};
  std::vector<Generated> expected;
  for (const GenerateRequest& request : requests)
    expected.push_back(generate(*plain, {&request, 1}, rules).at(0));
  EXPECT_NE(expected[0].tokens, expected[1].tokens) << "samples of one prompt are the same";
  EXPECT_TRUE(std::ranges::any_of(expected, [](const Generated& g) {
    return g.end == GenerateEnd::end_of_text;
  })) << "no text makes room for the next";
  for (const std::int64_t slots : {1, 3, 8}) {
    const auto way = cached_in(slots);
    std::vector<Tokens> told(requests.size());
    const auto got = generate(*way, requests, rules, [&](std::size_t request, std::int32_t token) {
      told[request].push_back(token);
    });
    for (std::size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(got[i].tokens, expected[i].tokens) << "text " << i << " in " << slots << " slots";
      EXPECT_EQ(got[i].end, expected[i].end);
      EXPECT_EQ(told[i], expected[i].tokens);
    }
  }
}

TEST_F(GenerateTest, NeedsNoMorePositionsThanTheTextHas) {
  const GenerateRules rules{.tokens = 3, .seed = 5};
  const auto way = cached_in(1, 4);
  EXPECT_EQ(text({1}, rules, way.get()), text({1}, rules));
  EXPECT_THROW(text({1, 2, 3}, rules, way.get()), ContractError);
}

TEST_F(GenerateTest, RefusesAnEmptyPromptAndForeignTokens) {
  EXPECT_THROW(text({}, {.tokens = 1}), ContractError);
  EXPECT_THROW(text({11}, {.tokens = 1}), ContractError);
  EXPECT_THROW(text({1}, {.tokens = 1, .alphabet = 12}), ContractError);
}

}  // namespace
}  // namespace trireme::inference
