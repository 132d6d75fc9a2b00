// SPDX-License-Identifier: Apache-2.0
// What Gpt guarantees apart from correct numbers: the calls of its hooks, independence of the split
// into batches, of the stream and of earlier calls, fixed memory, and that it learns.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "layout/residency.hpp"

#include "model/counting_device.hpp"
#include "model/recompute_choice.hpp"
#include "model/small_model.hpp"
#include "ops/matmul.hpp"

namespace trireme::model::testing {
namespace {

using ::testing::ElementsAreArray;
using Tokens = std::vector<std::int32_t>;

std::vector<ParameterIndex> range(std::size_t begin, std::size_t end) {
  std::vector<ParameterIndex> indices;
  for (std::size_t i = begin; i < end; ++i) indices.push_back(static_cast<ParameterIndex>(i));
  return indices;
}

Tokens part(const Tokens& all, std::int64_t first_row, std::int64_t rows, std::int64_t T) {
  return {all.begin() + first_row * T, all.begin() + (first_row + rows) * T};
}

class GptTest : public ::testing::TestWithParam<test::Backend> {
 protected:
  Tokens tokens = random_tokens(3 * 5, 11, 1);
  Tokens targets = random_tokens(3 * 5, 11, 2);

  static DType dtype() { return GetParam().dtype; }
  static bool on_gpu() { return GetParam().kind == device::Kind::cuda; }

  /// On a CPU, losses and logits have the same bits. A GPU computes all rows in one product and
  /// fuses what it need not store: there they agree up to rounding, relative to their size.
  static void expect_alike(const std::vector<float>& got, const std::vector<float>& expected) {
    if (!on_gpu()) {
      EXPECT_EQ(got, expected);
      return;
    }
    const float allowed = dtype() == DType::f32 ? 3e-6F : 0.01F;
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], expected[i], allowed * std::max(3.0F, std::abs(expected[i]))) << i;
  }

  /// In every parameter, whole = apart / 2 up to rounding.
  static void expect_half(const std::vector<std::vector<float>>& whole,
                          const std::vector<std::vector<float>>& apart,
                          const std::vector<layout::Parameter>& table) {
    const double tolerance = dtype() == DType::f32 ? 1e-5 : 3e-2;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      double largest = 0, worst = 0;
      for (std::size_t e = 0; e < whole[i].size(); ++e) {
        const auto expected = static_cast<double>(whole[i][e]);
        largest = std::max(largest, std::abs(expected));
        worst = std::max(worst, std::abs(static_cast<double>(apart[i][e]) / 2 - expected));
      }
      EXPECT_GT(largest, 0) << table[i].name;
      EXPECT_LE(worst, tolerance * largest) << table[i].name;
    }
  }
};
TRIREME_ON_BACKENDS(GptTest);

/// One shape per family, and a Qwen3 with a norm, with gain, after the embedding.
std::vector<GptShape> small_shapes() {
  GptShape with_both = small_qwen3();
  with_both.embedding_norm = true;
  return {small_shape(), small_llama(), small_qwen3(), small_nanochat(), with_both};
}

TEST_P(GptTest, ParametersAreAskedForInForwardOrderAndAgainInBackward) {
  for (const bool tied : {true, false}) {
    GptShape shape = small_shape();
    shape.tied_head = tied;
    SmallModel model(shape, GetParam());
    const auto expect_groups = [&](bool trains = false) {
      ASSERT_EQ(model.hooks.groups.size(), trains ? 6U : 4U);
      EXPECT_EQ(model.hooks.groups[0], range(0, 2));
      EXPECT_EQ(model.hooks.groups[1], range(2, 14));
      EXPECT_EQ(model.hooks.groups[2], range(14, 26));
      EXPECT_EQ(model.hooks.groups[3], range(26, tied ? 28 : 29));
      if (trains) {
        EXPECT_EQ(model.hooks.groups[4], range(14, 26));
        EXPECT_EQ(model.hooks.groups[5], range(2, 14));
      }
      model.hooks.groups.clear();
    };
    model.train(tokens, targets);
    expect_groups(true);
    model.evaluate(tokens, targets);
    expect_groups();
    model.next_logits({1, 2});
    expect_groups();
  }
}

TEST_P(GptTest, GradientsAreReadyInReverseRegistrationOrderOnTheLastMicroStepOnly) {
  for (const bool tied : {true, false})
    for (const bool bias : {true, false}) {
      GptShape shape = small_shape();
      shape.tied_head = tied;
      shape.bias = bias;
      SmallModel model(shape, GetParam());
      model.train(tokens, targets, 0, false);
      model.evaluate(tokens, targets);
      model.next_logits({3});
      EXPECT_TRUE(model.hooks.ready.empty());
      model.train(tokens, targets, 0, true);
      auto expected = range(0, model.table.size());
      std::reverse(expected.begin(), expected.end());
      EXPECT_THAT(model.hooks.ready, ElementsAreArray(expected));
    }
}

TEST_P(GptTest, GradientsOfEveryFamilyAreReadyInThatOrder) {
  for (const GptShape& shape : small_shapes()) {
    SmallModel model(shape, GetParam());
    model.train(tokens, targets);
    auto expected = range(0, model.table.size());
    std::reverse(expected.begin(), expected.end());
    EXPECT_THAT(model.hooks.ready, ElementsAreArray(expected));
    std::vector<std::vector<ParameterIndex>> groups = model.hooks.groups;
    std::erase(groups, std::vector<ParameterIndex>());
    std::size_t asked = 0, next = 0;
    for (; next < groups.size() && asked < model.table.size(); ++next)
      for (const ParameterIndex parameter : groups[next]) {
        EXPECT_EQ(at(parameter), asked++);
        EXPECT_EQ(model.table[at(parameter)].group, model.table[at(groups[next][0])].group);
      }
    EXPECT_EQ(asked, model.table.size());
    for (auto block = static_cast<std::size_t>(shape.layers); block > 0; --block, ++next) {
      ASSERT_LT(next, groups.size());
      EXPECT_EQ(groups[next], groups[block]);
    }
    if (next < groups.size()) {  // a norm of the embedding that has a gain
      EXPECT_TRUE(shape.embedding_norm);
      EXPECT_EQ(groups[next++], range(1, 2));
    }
    EXPECT_EQ(next, groups.size());
  }
}

/// A gradient must have its final value when it is reported.
TEST_P(GptTest, AReportedGradientIsNotWrittenAgain) {
  class Snapshots final : public Hooks {
   public:
    void before_use(std::span<const ParameterIndex> /*p*/, device::Stream& /*s*/) override {}
    void before_write(ParameterIndex /*p*/, device::Stream& /*s*/) override {}
    void gradient_ready(ParameterIndex parameter, device::Stream& /*s*/) override {
      taken.emplace_back(at(parameter), model->gradient_now(at(parameter)));
    }
    SmallModel* model = nullptr;
    std::vector<std::pair<std::size_t, std::vector<float>>> taken;
  };
  for (GptShape shape : small_shapes()) {
    shape.dropout = 0.1;
    SmallModel model(shape, GetParam());
    Snapshots hooks;
    hooks.model = &model;
    model.train(tokens, targets, 0, true, &hooks);
    ASSERT_EQ(hooks.taken.size(), model.table.size());
    for (const auto& [i, gradient] : hooks.taken)
      EXPECT_EQ(gradient, model.gradients[i]) << model.table[i].name;
  }
}

/// Gradients may share memory slots (layout/residency.hpp). A gradient is requested before it is
/// written, and not while three before it in backward are unfinished, unless it has its own bucket.
TEST_P(GptTest, AGradientIsAskedForBeforeItIsWrittenAndWhenItsTurnCanCome) {
  class Turns final : public Hooks {
   public:
    explicit Turns(SmallModel& model) : asked(model.table.size()), model_(model) {}
    void before_use(std::span<const ParameterIndex> /*p*/, device::Stream& /*s*/) override {}
    void before_write(ParameterIndex parameter, device::Stream& /*s*/) override {
      const std::size_t p = at(parameter);
      if (asked[p] != 0)
        return;
      asked[p] = 1;
      for (const float value : model_.gradient_now(p))
        ASSERT_EQ(value, 0.0F) << model_.table[p].name;
      const auto before =
          std::count_if(model_.table.begin() + static_cast<std::ptrdiff_t>(p) + 1,
                        model_.table.end(), [](const auto& other) { return !other.own_bucket; });
      if (!model_.table[p].own_bucket) {
        EXPECT_LT(before - num_ready_, std::int64_t{layout::Ring::gradient_slots})
            << model_.table[p].name;
      }
    }
    void gradient_ready(ParameterIndex parameter, device::Stream& /*s*/) override {
      EXPECT_TRUE(asked[at(parameter)]);
      num_ready_ += model_.table[at(parameter)].own_bucket ? 0 : 1;
    }

    std::vector<char> asked;  // by parameter: whether it was requested

   private:
    SmallModel& model_;
    std::int64_t num_ready_ = 0;
  };
  for (const GptShape& shape : small_shapes()) {
    SmallModel model(shape, GetParam());
    Turns hooks(model);
    model.train(tokens, targets, 0, true, &hooks);
    EXPECT_EQ(hooks.asked, std::vector<char>(model.table.size(), 1));
  }
}

TEST_P(GptTest, EvaluationGivesTheLossesOfTrainingWithoutDropout) {
  for (const GptShape& shape : small_shapes()) {
    SmallModel model(shape, GetParam());
    expect_alike(model.train(tokens, targets), model.evaluate(tokens, targets));
  }
}

TEST_P(GptTest, LossesDoNotDependOnTheCutIntoBatches) {
  for (std::size_t which = 0; which < 2 * small_shapes().size(); ++which) {
    GptShape shape = small_shapes()[which / 2];
    shape.dropout = which % 2 == 0 ? 0.0 : 0.3;
    SmallModel model(shape, GetParam());
    const auto whole = model.train(tokens, targets, 100);
    const auto evaluated = model.evaluate(tokens, targets);
    std::vector<float> trained_apart, evaluated_apart;
    for (std::int64_t row = 0; row < 3; ++row) {
      const auto x = part(tokens, row, 1, 5), y = part(targets, row, 1, 5);
      const auto t = model.train(x, y, 100 + static_cast<std::uint64_t>(row));
      const auto e = model.evaluate(x, y);
      trained_apart.insert(trained_apart.end(), t.begin(), t.end());
      evaluated_apart.insert(evaluated_apart.end(), e.begin(), e.end());
    }
    SCOPED_TRACE(which);
    expect_alike(trained_apart, whole);
    expect_alike(evaluated_apart, evaluated);
  }
}

/// At these sizes the matrix library's order of additions in a row depends on the number of rows.
TEST_P(GptTest, NorDoTheyAtSizesThatAreNoMultipleOfATile) {
  for (const GptShape& shape :
       {GptShape{.layers = 1, .heads = 3, .channels = 51, .context = 7, .vocabulary = 257},
        GptShape{.layers = 1, .heads = 3, .channels = 48, .context = 37, .vocabulary = 101},
        GptShape{.layers = 1, .heads = 2, .channels = 96, .context = 129, .vocabulary = 1000},
        GptShape{.layers = 1, .heads = 4, .channels = 200, .context = 192, .vocabulary = 5003}}) {
    SmallModel model(shape, GetParam(), 3);
    const std::int64_t T = shape.context;
    const Tokens x = random_tokens(3 * T, shape.vocabulary, 3);
    const Tokens y = random_tokens(3 * T, shape.vocabulary, 4);
    const auto whole = model.evaluate(x, y);
    SCOPED_TRACE(T);
    expect_alike(model.train(x, y), whole);
    auto apart = model.evaluate(part(x, 0, 2, T), part(y, 0, 2, T));
    const auto rest = model.evaluate(part(x, 2, 1, T), part(y, 2, 1, T));
    apart.insert(apart.end(), rest.begin(), rest.end());
    expect_alike(apart, whole);
  }
}

/// A recomputed block also requests no gradient and drops the same elements.
TEST_P(GptTest, RecomputingChangesNoBits) {
  for (const auto& [given, dropout] :
       {std::pair{small_shape(), 0.0}, {small_shape(), 0.3}, {small_llama(), 0.3}}) {
    GptShape shape = given;
    shape.layers = 3;
    shape.dropout = dropout;
    SmallModel kept(shape, GetParam());
    const auto losses = kept.train(tokens, targets, 9);
    const auto evaluated = kept.evaluate(tokens, targets);
    const auto logits = kept.next_logits({1, 2, 3});
    std::size_t bytes = kept.gpt.activation_bytes();
    for (const Recompute recompute : {Recompute::gelu, Recompute::block}) {
      shape.recompute = recompute;
      SmallModel model(shape, GetParam());
      SCOPED_TRACE(dropout);
      expect_alike(model.evaluate(tokens, targets), evaluated);
      model.hooks.groups.clear();
      expect_alike(model.train(tokens, targets, 9), losses);
      if (!on_gpu()) {  // a repeated GELU cannot be the fused one
        EXPECT_EQ(model.gradients, kept.gradients);
      }
      EXPECT_EQ(model.hooks.groups.size(), 8U);  // three blocks, each twice
      expect_alike(model.next_logits({1, 2, 3}), logits);
      EXPECT_LT(model.gpt.activation_bytes(), bytes);
      bytes = model.gpt.activation_bytes();
    }
  }
}

/// The same if each block has its own recompute setting.
TEST_P(GptTest, NorDoBlocksThatRecomputeOtherThings) {
  using enum Recompute;
  using Words = std::vector<Recompute>;
  for (const auto& [given, dropout] :
       {std::pair{small_shape(), 0.0}, {small_shape(), 0.3}, {small_qwen3(), 0.3}}) {
    GptShape shape = given;
    shape.layers = 4;
    shape.dropout = dropout;
    SmallModel kept(shape, GetParam());
    const auto losses = kept.train(tokens, targets, 9);
    const auto evaluated = kept.evaluate(tokens, targets);
    for (const Words& words : {Words{block, none, block, none}, Words{none, block, block, block},
                               Words{block, block, gelu, none}, Words{gelu, block, none, block},
                               Words{none, gelu, gelu, gelu}}) {
      shape.recompute = RecomputeKey(words);
      SmallModel model(shape, GetParam());
      SCOPED_TRACE(::testing::PrintToString(dropout) + ": " + recompute_text(shape.recompute));
      expect_alike(model.evaluate(tokens, targets), evaluated);
      model.hooks.groups.clear();
      expect_alike(model.train(tokens, targets, 9), losses);
      const bool fuses_as_kept =
          shape.activation != Activation::gelu || std::ranges::count(words, gelu) == 0;
      if (!on_gpu() || fuses_as_kept) {
        EXPECT_EQ(model.gradients, kept.gradients);
      }
      EXPECT_EQ(model.hooks.groups.size(), 10U);  // four blocks, each twice
      expect_alike(model.evaluate(tokens, targets), evaluated);
      EXPECT_LT(model.gpt.activation_bytes(), kept.gpt.activation_bytes());
    }
  }
}

/// Part of a sequence, several sequences, and more rows than there are.
TEST_P(GptTest, LossesDoNotDependOnTheRowsOfTheLoss) {
  SmallModel whole(small_shape(), GetParam());
  const auto losses = whole.train(tokens, targets);
  const auto evaluated = whole.evaluate(tokens, targets);
  for (const std::int64_t rows : {1, 3, 5, 12, 100}) {
    SCOPED_TRACE(rows);
    GptShape shape = small_shape();
    shape.loss_rows = rows;
    SmallModel model(shape, GetParam());
    const auto near = [&](const std::vector<float>& got, const std::vector<float>& expected) {
      for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_NEAR(got[i], expected[i], dtype() == DType::f32 ? 1e-5F : 0.03F) << i;
    };
    near(model.train(tokens, targets), losses);
    near(model.evaluate(tokens, targets), evaluated);
    for (std::size_t p = 0; p < whole.gradients.size(); ++p)
      near(model.gradients[p], whole.gradients[p]);
    if (!on_gpu() && rows % 5 == 0) {  // whole sequences, as in a CPU's products anyway
      EXPECT_EQ(model.gradients, whole.gradients);
    }
  }
}

TEST_P(GptTest, GradientsOfMicroStepsAddUpToThatOfTheWholeBatch) {
  SmallModel whole(small_shape(), GetParam()), apart(small_shape(), GetParam());
  const auto x = part(tokens, 0, 2, 5), y = part(targets, 0, 2, 5);
  whole.train(x, y);
  apart.train(part(x, 0, 1, 5), part(y, 0, 1, 5), 0, false);
  apart.train(part(x, 1, 1, 5), part(y, 1, 1, 5), 1, true);
  expect_half(whole.gradients, apart.gradients, whole.table);
}

TEST_P(GptTest, TheSameMicroStepTwiceGivesTwiceTheGradient) {
  SmallModel once(small_shape(), GetParam()), twice(small_shape(), GetParam());
  once.train(tokens, targets);
  twice.train(tokens, targets, 0, false);
  twice.evaluate(targets, tokens);  // must not change the accumulated gradients
  twice.train(tokens, targets, 0, true);
  for (std::size_t i = 0; i < once.gradients.size(); ++i)
    for (std::size_t e = 0; e < once.gradients[i].size(); ++e)
      ASSERT_NEAR(twice.gradients[i][e], 2 * once.gradients[i][e],
                  2e-6F * std::abs(once.gradients[i][e]) + 1e-6F)
          << once.table[i].name << " element " << e;
}

TEST_P(GptTest, AConcurrentStreamGivesTheSameBits) {
  GptShape shape = small_shape();
  shape.dropout = 0.2;
  SmallModel inlined(shape, GetParam());
  SmallModel concurrent(shape, GetParam(), 3, device::StreamMode::concurrent);
  EXPECT_EQ(inlined.train(tokens, targets, 5), concurrent.train(tokens, targets, 5));
  EXPECT_EQ(inlined.gradients, concurrent.gradients);
  EXPECT_EQ(inlined.evaluate(tokens, targets), concurrent.evaluate(tokens, targets));
  EXPECT_EQ(inlined.next_logits({1, 2, 3}), concurrent.next_logits({1, 2, 3}));
}

TEST_P(GptTest, DropoutIsAFunctionOfTheSample) {
  GptShape shape = small_shape();
  shape.dropout = 0.3;
  SmallModel model(shape, GetParam());
  EXPECT_EQ(model.train(tokens, targets, 5), model.train(tokens, targets, 5));
  EXPECT_NE(model.train(tokens, targets, 5), model.train(tokens, targets, 6));
}

TEST_P(GptTest, NextLogitsAreTheDistributionThatEvaluationJudges) {
  const Tokens x = part(tokens, 0, 1, 5);
  for (const double softcap : {0.0, 0.5}) {
    GptShape shape = small_shape();
    shape.logit_softcap = softcap;
    SmallModel model(shape, GetParam());
    for (std::size_t length = 1; length <= x.size(); ++length) {
      const auto logits = model.next_logits({x.begin(), x.begin() + static_cast<long>(length)});
      double sum = 0;
      for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
      for (std::int32_t target = 0; target < 11; ++target) {
        Tokens y(5, 0);
        y[length - 1] = target;
        const double loss = model.evaluate(x, y)[length - 1];
        EXPECT_NEAR(std::log(sum) - logits[static_cast<std::size_t>(target)], loss, 1e-5)
            << "cap " << softcap << ", length " << length << ", token " << target;
      }
    }
  }
}

TEST_P(GptTest, AStepAllocatesNoDeviceMemory) {
  if (on_gpu())
    GTEST_SKIP() << "the device that counts is a CPU";
  CountingDevice device;
  GptShape shape = small_shape();
  shape.dropout = 0.1;
  SmallModel model(shape, GetParam(), 3, device::StreamMode::inlined, &device);
  model.train(tokens, targets);  // the scratch pool grows
  const std::size_t planned = device.num_allocations();
  EXPECT_GT(planned, 0U);
  for (int step = 0; step < 2; ++step) {
    model.train(tokens, targets);
    model.evaluate(tokens, targets);
  }
  EXPECT_EQ(device.num_allocations(), planned);
  // A smaller batch creates its own products, only at its first use.
  model.evaluate(part(tokens, 0, 1, 5), part(targets, 0, 1, 5));
  model.next_logits({1});
  const std::size_t with_smaller = device.num_allocations();
  model.evaluate(part(tokens, 0, 1, 5), part(targets, 0, 1, 5));
  model.next_logits({1, 2});
  EXPECT_EQ(device.num_allocations(), with_smaller);
}

/// No scratch is read before it is written, none is needed from an earlier call, and a lease has
/// its planned size for every batch.
TEST_P(GptTest, PoisonedScratchAndNoPoolGiveTheSameBits) {
  GptShape shape = small_shape();
  shape.dropout = 0.1;
  SmallModel plain(shape, GetParam(), 3);
  const auto losses = plain.train(tokens, targets);
  const auto evaluated = plain.evaluate(tokens, targets);
  for (const bool pooled : {true, false}) {
    const auto device = test::make_device(GetParam(), 1);
    device::ScratchPool scratch(*device, {.pooled = pooled, .poison = true});
    SmallModel model(shape, GetParam(), 3, device::StreamMode::inlined, device.get(), &scratch);
    model.evaluate(part(tokens, 0, 1, 5), part(targets, 0, 1, 5));
    EXPECT_EQ(model.train(tokens, targets), losses);
    EXPECT_EQ(model.evaluate(tokens, targets), evaluated);
    EXPECT_EQ(model.gradients, plain.gradients);
    const std::uint64_t warm = scratch.num_allocations();
    model.train(tokens, targets);
    EXPECT_EQ(scratch.num_allocations() > warm, !pooled);
    EXPECT_EQ(scratch.allocated_bytes() > 0, pooled);
    for (const auto& block : scratch.usage()) {
      if (block.name == "wide") {
        EXPECT_EQ(block.high_water_bytes, 4 * 15 * 8 * size_bytes(dtype()));
      }
    }
  }
}

/// A vocabulary so large that the head splits a sequence into two chunks, the second one shorter.
TEST_P(GptTest, TheHeadInChunksGivesTheSameAsRowByRow) {
  GptShape shape{.layers = 1, .heads = 1, .channels = 4, .context = 70};
  shape.vocabulary = dtype() == DType::f32 ? 1 << 19 : 1 << 20;
  SmallModel model(shape, GetParam(), 2);
  if (on_gpu())
    GTEST_SKIP() << "a GPU takes more rows at a time than two sequences have";
  ASSERT_EQ(activation_plan(shape, dtype(), 2, device::Kind::cpu).head_rows(), 48);
  const Tokens x = random_tokens(140, shape.vocabulary, 3);
  const Tokens y = random_tokens(140, shape.vocabulary, 4);
  const auto losses = model.evaluate(x, y);
  EXPECT_EQ(model.train(x, y), losses);
  double sum = 0;
  const auto logits = model.next_logits(part(x, 1, 1, 70));  // the last row of the shorter chunk
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  EXPECT_NEAR(losses.back(), std::log(sum) - logits[static_cast<std::size_t>(y.back())], 1e-4);

  // Gradients too: training sequence by sequence must give the same result.
  SmallModel apart(shape, GetParam(), 1);
  for (std::int64_t row = 0; row < 2; ++row) apart.train(part(x, row, 1, 70), part(y, row, 1, 70));
  expect_half(model.gradients, apart.gradients, model.table);
}

/// The same rows in chunks of 96 and of 64. Without position parameters, the model with the longer
/// context must give the same losses for the first 96 tokens.
TEST_P(GptTest, LossesDoNotDependOnTheRowsOfAChunk) {
  if (on_gpu())
    GTEST_SKIP() << "a GPU takes more rows at a time than a sequence has";
  GptShape shape{.layers = 1, .heads = 1, .channels = 4, .context = 96};
  shape.vocabulary = dtype() == DType::f32 ? 1 << 18 : 1 << 19;
  shape.positions = Positions::rotary;
  shape.rotary_theta = 10000;
  SmallModel whole(shape, GetParam(), 1);
  ASSERT_EQ(activation_plan(shape, dtype(), 1, device::Kind::cpu).head_rows(), 96);
  shape.context = 128;
  SmallModel halves(shape, GetParam(), 1);
  ASSERT_EQ(activation_plan(halves.shape, dtype(), 1, device::Kind::cpu).head_rows(), 64);
  const Tokens x = random_tokens(128, shape.vocabulary, 5);
  const Tokens y = random_tokens(128, shape.vocabulary, 6);
  auto expected = halves.evaluate(x, y);
  expected.resize(96);
  EXPECT_EQ(whole.evaluate(part(x, 0, 1, 96), part(y, 0, 1, 96)), expected);
  EXPECT_EQ(whole.train(part(x, 0, 1, 96), part(y, 0, 1, 96)), expected);
}

TEST_P(GptTest, RefusesWhatDoesNotFit) {
  SmallModel model(small_shape(), GetParam(), 2);
  EXPECT_THROW(model.train(random_tokens(15, 11, 1), random_tokens(15, 11, 1)), ContractError);
  EXPECT_THROW(model.evaluate(random_tokens(4, 11, 1), random_tokens(4, 11, 1)), ContractError);
  EXPECT_THROW(model.evaluate(random_tokens(5, 11, 1), random_tokens(10, 11, 1)), ContractError);
  EXPECT_THROW(model.next_logits(random_tokens(6, 11, 1)), ContractError);
  EXPECT_THROW(model.next_logits({}), ContractError);
  Gpt unbound(model.device, small_shape(), dtype(), 1, 1);
  std::vector<float> logits(11);
  EXPECT_THROW(unbound.next_logits(view_of(targets.data(), 1), view_of(logits.data(), 11),
                                   model.hooks, *model.stream),
               ContractError);
  EXPECT_THROW(unbound.bind({}, {}), ContractError);
  GptShape odd = small_shape();
  odd.heads = 3;
  EXPECT_THROW(Gpt(model.device, odd, dtype(), 1, 1), ContractError);
}

TEST_P(GptTest, OverfitsOneBatch) {
  GptShape shape{.layers = 2, .heads = 2, .channels = 32, .context = 8, .vocabulary = 17};
  SmallModel model(shape, GetParam(), 4);
  for (std::size_t i = 0; i < model.values.size(); ++i)
    Layers(shape).registry.initialize(static_cast<ParameterIndex>(i), 1,
                                      view_of(model.values[i].data(), model.table[i].elements()));
  model.bind();
  const Tokens x = random_tokens(32, 17, 5), y = random_tokens(32, 17, 6);
  std::vector<std::vector<float>> m(model.values.size()), v(model.values.size());
  double first = 0, last = 0;
  for (int step = 1; step <= 300; ++step) {
    model.zero_gradients();
    const auto losses = model.train(x, y);
    last = std::accumulate(losses.begin(), losses.end(), 0.0) / 32;
    if (step == 1)
      first = last;
    for (std::size_t i = 0; i < model.values.size(); ++i) {
      m[i].resize(model.values[i].size());
      v[i].resize(model.values[i].size());
      for (std::size_t e = 0; e < m[i].size(); ++e) {
        const float g = model.gradients[i][e];
        m[i][e] = 0.9F * m[i][e] + 0.1F * g;
        v[i][e] = 0.99F * v[i][e] + 0.01F * g * g;
        const float unbiased = m[i][e] / (1 - std::pow(0.9F, static_cast<float>(step)));
        const float scale = std::sqrt(v[i][e] / (1 - std::pow(0.99F, static_cast<float>(step))));
        model.values[i][e] -= 3e-3F * unbiased / (scale + 1e-8F);
      }
    }
    model.bind();
  }
  EXPECT_NEAR(first, std::log(17.0), 0.3);  // untrained: all tokens equally likely
  EXPECT_LT(last, 0.1);
}

}  // namespace
}  // namespace trireme::model::testing
