// SPDX-License-Identifier: Apache-2.0
// Results that do not depend on the number of ranks are compared with those of one rank.
#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "base/round_up.hpp"

#include "model/small_model.hpp"

#include "comm/control/agreement.hpp"

#include "tokens/token_stream.hpp"

#include "inference/multiple_choice.hpp"
#include "inference/scorer.hpp"

namespace trireme::inference {
namespace {

using model::testing::random_tokens;
using model::testing::SmallModel;
using Tokens = std::vector<std::int32_t>;

class OnRanks : public ::testing::Test {
 protected:
  static model::GptShape shape() {
    return {.layers = 1, .heads = 2, .channels = 8, .context = 70, .vocabulary = 17};
  }
  OnRanks()
      : model(shape(), {}, 1),
        scorer(model.device, shape(), DType::f32, views(), model.hooks, *model.stream) {}
  std::vector<ConstView> views() {
    std::vector<ConstView> all;
    for (const auto& values : model.values)
      all.emplace_back(view_of(values.data(), std::ssize(values)));
    return all;
  }
  SmallModel model;
  Scorer scorer;
  std::unique_ptr<comm::World> world = comm::make_mpi_world(), alone = comm::make_self_world();
};

TEST_F(OnRanks, TheLossIsThatOfAllTokensButTheFirst) {
  Tokens bytes_of(17, 2);
  bytes_of[5] = 0;
  for (const std::int64_t size : {2, 70, 71, 72, 500}) {
    const Tokens tokens = random_tokens(size, 17, 2);
    const tokens::HeldTokens stream(tokens, 17, "made up");
    const TokenLoss got = token_loss(scorer, stream, bytes_of, *world);
    const TokenLoss one = token_loss(scorer, stream, bytes_of, *alone);
    EXPECT_EQ(got.nats, one.nats) << size;
    EXPECT_EQ(got.bytes, one.bytes);
    EXPECT_EQ(got.tokens, size - 1);
    // Window by window, in double precision.
    double nats = 0;
    std::int64_t bytes = 0;
    for (std::int64_t begin = 0; begin + 1 < size; begin += 70) {
      Row row;
      for (std::int64_t i = begin; i + 1 < std::min(size, begin + 71); ++i) {
        row.tokens.push_back(tokens[static_cast<std::size_t>(i)]);
        row.targets.push_back(tokens[static_cast<std::size_t>(i + 1)]);
        bytes += row.targets.back() == 5 ? 0 : 2;
      }
      const auto losses = scorer.losses({&row, 1});
      for (const float loss : losses.at(0)) nats += static_cast<double>(loss);
    }
    EXPECT_NEAR(got.nats, nats, 1e-9 * nats);
    EXPECT_EQ(got.bytes, bytes);
  }
}

std::vector<batches::Question> random_questions(std::uint64_t count) {
  std::vector<batches::Question> questions;
  for (std::uint64_t q = 0; q < count; ++q) {
    batches::Question question;
    question.context = random_tokens(1 + 5 * static_cast<std::int64_t>(q), 17, q);
    question.label = static_cast<std::int64_t>(q % 3);
    for (std::uint64_t c = 0; c < 3; ++c)
      question.choices.push_back(
          random_tokens(1 + static_cast<std::int64_t>((q + 3 * c) % 7), 17, 100 + 3 * q + c));
    questions.push_back(question);
  }
  return questions;
}

TEST_F(OnRanks, EqualPassesHaveTheSameResults) {
  model::testing::RecordingHooks hooks;
  Scorer equal(model.device, shape(), DType::f32, views(), hooks, *model.stream, {}, Passes::equal);
  for (const std::int64_t windows : {1, 2, 5, 6, 7}) {
    const Tokens tokens = random_tokens(70 * windows, 17, 3);
    const tokens::HeldTokens stream(tokens, 17, "made up");
    hooks.groups.clear();
    const TokenLoss got = token_loss(equal, stream, {}, *world);
    EXPECT_EQ(got.nats, token_loss(scorer, stream, {}, *alone).nats) << windows;
    const std::int64_t a_pass = 3;  // embeddings, the block, the norm
    EXPECT_EQ(std::ssize(hooks.groups), a_pass * divided_up(windows, world->size())) << windows;
  }
  const auto questions = random_questions(23);
  hooks.groups.clear();
  const ChoiceScores got = multiple_choice(equal, questions, *world);
  const ChoiceScores one = multiple_choice(scorer, questions, *alone);
  EXPECT_EQ(got.sum.right, one.sum.right);
  EXPECT_EQ(got.per_token.right, one.per_token.right);
  const std::uint64_t uses = hooks.groups.size();
  EXPECT_GT(uses, 0U);
  EXPECT_TRUE(comm::differing(*world, {&uses, 1}).empty());
}

TEST_F(OnRanks, TheAnswersAreThoseOfOneRank) {
  auto questions = random_questions(23);
  for (batches::Question& question : questions)
    for (const Tokens& choice : question.choices)
      question.lengths.push_back(3 * std::ssize(choice));
  const ChoiceScores got = multiple_choice(scorer, questions, *world);
  // By hand: the answer is the choice with the smallest loss.
  Accuracy sum, per_token;
  for (const batches::Question& question : questions) {
    std::vector<double> sums, means;
    for (const Tokens& choice : question.choices) {
      const Row row = row_of(question.context, choice, 70);
      double nats = 0;
      const auto losses = scorer.losses({&row, 1});
      for (const float loss : losses.at(0)) nats += static_cast<double>(loss);
      sums.push_back(nats);
      means.push_back(nats / static_cast<double>(choice.size()));
    }
    const auto answer = [](const std::vector<double>& of) {
      return std::min_element(of.begin(), of.end()) - of.begin();
    };
    sum.right += answer(sums) == question.label ? 1 : 0;
    per_token.right += answer(means) == question.label ? 1 : 0;
  }
  EXPECT_EQ(got.sum.of, 23);
  EXPECT_EQ(got.sum.right, sum.right);
  EXPECT_EQ(got.per_token.right, per_token.right);
  EXPECT_EQ(got.per_character.right, per_token.right);  // three characters for each token
  EXPECT_GT(sum.right, 0);
  EXPECT_LT(sum.right, 23);
  for (batches::Question& question : questions) question.lengths.clear();
  EXPECT_EQ(multiple_choice(scorer, questions, *world).per_character.of, 0);
}

}  // namespace
}  // namespace trireme::inference
