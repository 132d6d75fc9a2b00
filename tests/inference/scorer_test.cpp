// SPDX-License-Identifier: Apache-2.0
#include "inference/scorer.hpp"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "model/small_model.hpp"

#include "inference/multiple_choice.hpp"

namespace trireme::inference {
namespace {

using model::GptShape;
using model::testing::random_tokens;
using model::testing::SmallModel;
using Tokens = std::vector<std::int32_t>;

GptShape shape() {
  return {.layers = 2, .heads = 2, .channels = 16, .context = 300, .vocabulary = 29};
}

class ScorerTest : public ::testing::Test {
 protected:
  ScorerTest()
      : model(shape(), {}, 1),
        scorer(model.device, shape(), DType::f32, views(), model.hooks, *model.stream) {}
  std::vector<ConstView> views() {
    std::vector<ConstView> all;
    for (const auto& values : model.values)
      all.emplace_back(view_of(values.data(), std::ssize(values)));
    return all;
  }
  /// The losses of a whole context that begins with `row`.
  std::vector<float> reference(const Row& row) {
    Tokens tokens = row.tokens, targets = row.targets;
    tokens.resize(300, 3);
    targets.resize(300, 5);
    auto losses = model.evaluate(tokens, targets);
    losses.resize(row.tokens.size());
    return losses;
  }
  static Row row_of_length(std::int64_t length, std::uint64_t seed) {
    const Tokens all = random_tokens(length + 1, 29, seed);
    return {{all.begin(), all.end() - 1}, {all.begin() + 1, all.end()}};
  }
  SmallModel model;
  Scorer scorer;
};

TEST(WidthOf, IsTheNarrowestThatHoldsTheRow) {
  EXPECT_EQ(width_of(1, 1024), 64);
  EXPECT_EQ(width_of(64, 1024), 64);
  EXPECT_EQ(width_of(65, 1024), 128);
  EXPECT_EQ(width_of(600, 1024), 1024);
  EXPECT_EQ(width_of(260, 300), 300);
  EXPECT_EQ(width_of(5, 16), 16);
  EXPECT_THROW(width_of(17, 16), ContractError);
  EXPECT_THROW(width_of(0, 16), ContractError);
}

TEST_F(ScorerTest, ARowHasTheLossesOfTheWholeModel) {
  for (const std::int64_t length : {1, 63, 64, 65, 128, 129, 300}) {
    const Row row = row_of_length(length, 3);
    const auto got = scorer.losses({&row, 1}).at(0);
    const auto expected = reference(row);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], expected[i], 0) << "token " << i << " of " << length;
  }
}

TEST_F(ScorerTest, RowsOfOneWidthDoNotDisturbOneAnother) {
  std::vector<Row> rows;
  for (std::uint64_t r = 0; r < 4; ++r)
    rows.push_back(row_of_length(10 + 15 * static_cast<std::int64_t>(r), r));
  rows[2].targets[4] = -1;
  ASSERT_EQ(scorer.rows_at_once(64), 4);
  const auto together = scorer.losses(rows);
  for (std::size_t r = 0; r < rows.size(); ++r)
    EXPECT_EQ(together[r], scorer.losses({&rows[r], 1}).at(0)) << r;
  EXPECT_EQ(together[2][4], 0);
  EXPECT_GT(together[2][3], 0);
}

TEST_F(ScorerTest, RefusesRowsThatDoNotFitTogether) {
  const std::vector<Row> different = {row_of_length(10, 1), row_of_length(70, 1)};
  EXPECT_THROW(scorer.losses(different), ContractError);
  const std::vector<Row> many(5, row_of_length(10, 1));
  EXPECT_THROW(scorer.losses(many), ContractError);
  const Row uneven{{1, 2}, {1}};
  EXPECT_THROW(scorer.losses({&uneven, 1}), ContractError);
}

TEST(RowOf, JudgesTheChoiceAndLosesTheBeginning) {
  const Row row = row_of({1, 2, 3}, {4, 5}, 10);
  EXPECT_EQ(row.tokens, (Tokens{1, 2, 3, 4}));
  EXPECT_EQ(row.targets, (Tokens{-1, -1, 4, 5}));
  const Row cut = row_of({1, 2, 3}, {4, 5}, 3);
  EXPECT_EQ(cut.tokens, (Tokens{2, 3, 4}));
  EXPECT_EQ(cut.targets, (Tokens{-1, 4, 5}));
  EXPECT_EQ(row_of({1, 2}, {3, 4}, 2).tokens, (Tokens{2, 3}));
  EXPECT_THROW(row_of({1, 2}, {3, 4, 5}, 2), ContractError);
  EXPECT_THROW(row_of({}, {3}, 2), ContractError);
}

TEST(Accuracy, HasTheStandardErrorOfASample) {
  const Accuracy accuracy{.right = 3, .of = 4};
  EXPECT_EQ(accuracy.value(), 0.75);
  // Zeros and ones with mean 3/4: sample variance 1/4, over 4.
  EXPECT_DOUBLE_EQ(accuracy.standard_error(), 0.25);
  EXPECT_TRUE(std::isnan((Accuracy{.right = 1, .of = 1}).standard_error()));
}

TEST(TokenLoss, IsInNatsAndInBits) {
  const TokenLoss loss{.tokens = 4, .bytes = 8, .nats = 8 * std::log(2.0)};
  EXPECT_DOUBLE_EQ(loss.bits_per_byte(), 1);
  EXPECT_DOUBLE_EQ(loss.loss(), 2 * std::log(2.0));
  EXPECT_DOUBLE_EQ(loss.perplexity(), 4);
  EXPECT_TRUE(std::isnan((TokenLoss{.tokens = 4, .nats = 1}).bits_per_byte()));
}

}  // namespace
}  // namespace trireme::inference
