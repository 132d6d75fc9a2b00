// SPDX-License-Identifier: Apache-2.0
// Compares the choice for a budget with every assignment of settings to a few blocks.
#include "model/recompute_choice.hpp"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.hpp"

#include "model/layers.hpp"
#include "model/small_model.hpp"

namespace trireme::model::testing {
namespace {

using Words = std::vector<Recompute>;

/// How often backward repeats a block's forward, and how often only that of an activation.
using Work = std::pair<std::int64_t, std::int64_t>;

struct Assignment {
  Words words;
  Work work;
  std::int64_t bytes = 0;
};

std::int64_t bytes_with(GptShape shape, const ActivationSizes& sizes, const Words& words) {
  shape.recompute = RecomputeKey(words);
  const auto plan = activation_plan(shape, sizes.dtype, sizes.micro_sequences, sizes.kind);
  return static_cast<std::int64_t>(plan.bytes() + plan.scratch().bytes());
}

Work work_of(const Words& words) {
  const auto blocks = std::ranges::count(words, Recompute::block);
  return {std::max<std::int64_t>(blocks - 1, 0), std::ranges::count(words, Recompute::gelu)};
}

std::vector<Assignment> all_assignments(const GptShape& shape, const ActivationSizes& sizes) {
  std::vector<Assignment> all{{}};
  for (std::int64_t l = 0; l < shape.layers; ++l) {
    std::vector<Assignment> longer;
    for (const Assignment& one : all)
      for (const auto& [recompute, name] : EnumNames<Recompute>::table) {
        longer.push_back(one);
        longer.back().words.push_back(recompute);
      }
    all = std::move(longer);
  }
  for (Assignment& one : all) {
    one.work = work_of(one.words);
    one.bytes = bytes_with(shape, sizes, one.words);
  }
  return all;
}

Words words_of(const RecomputeChoice& choice, std::int64_t layers) {
  Words words;
  for (std::int64_t l = 0; l < layers; ++l)
    words.push_back(choice.recompute.of(static_cast<std::size_t>(l)));
  return words;
}

class RecomputeChoiceTest : public ::testing::TestWithParam<std::pair<GptShape, ActivationSizes>> {
 protected:
  GptShape shape = GetParam().first;
  ActivationSizes sizes = GetParam().second;
};

TEST_P(RecomputeChoiceTest, IsTheLeastWorkThatFits) {
  for (std::int64_t layers = 1; layers <= 4; ++layers) {
    shape.layers = layers;
    const std::vector<Assignment> all = all_assignments(shape, sizes);
    std::set<std::int64_t> budgets;
    for (const Assignment& one : all) budgets.insert({one.bytes - 1, one.bytes, one.bytes + 1});
    for (const std::int64_t budget : budgets) {
      const RecomputeChoice choice = choose_recompute(shape, sizes, budget);
      const Words words = words_of(choice, layers);
      SCOPED_TRACE(recompute_text(choice.recompute));
      EXPECT_EQ(choice.bytes, bytes_with(shape, sizes, words));
      EXPECT_EQ(choice.fits, choice.bytes <= budget);
      const auto fits = [&](const Assignment& one) { return one.bytes <= budget; };
      if (std::ranges::none_of(all, fits)) {
        EXPECT_FALSE(choice.fits);
        EXPECT_EQ(choice.bytes, std::ranges::min_element(all, {}, &Assignment::bytes)->bytes);
        continue;
      }
      ASSERT_TRUE(choice.fits);
      Work least{layers, layers};
      for (const Assignment& one : all)
        if (fits(one))
          least = std::min(least, one.work);
      EXPECT_EQ(work_of(words), least);
    }
  }
}

TEST_P(RecomputeChoiceTest, BeginsWithTheFirstBlocksAndFallsWithTheBudget) {
  shape.layers = 7;
  const std::int64_t most = bytes_with(shape, sizes, Words(7, Recompute::none));
  const std::int64_t least = bytes_with(shape, sizes, Words(7, Recompute::block));
  Work before{8, 8};
  for (int i = 0; i <= 100; ++i) {
    const RecomputeChoice choice = choose_recompute(shape, sizes, least + (most - least) * i / 100);
    const Words words = words_of(choice, 7);
    ASSERT_TRUE(choice.fits);
    EXPECT_TRUE(std::ranges::is_sorted(words, std::ranges::greater{})) << "block, gelu, none";
    EXPECT_NE(std::ranges::count(words, Recompute::block), 1) << "saves nothing";
    EXPECT_LE(work_of(words), before);
    before = work_of(words);
  }
  EXPECT_EQ(before, Work(0, 0));
}

/// A list with one repeated word means the same as the word.
TEST_P(RecomputeChoiceTest, IsOneWordWhereAllBlocksAreAlike) {
  const RecomputeChoice none = choose_recompute(shape, sizes, std::int64_t{1} << 50U);
  EXPECT_EQ(none.recompute, RecomputeKey(Recompute::none));
  const RecomputeChoice least = choose_recompute(shape, sizes, 0);
  EXPECT_FALSE(least.fits);
  EXPECT_EQ(least.recompute, RecomputeKey(Recompute::block));
}

INSTANTIATE_TEST_SUITE_P(
    Models,
    RecomputeChoiceTest,
    ::testing::Values(std::pair(small_shape(), ActivationSizes{DType::f32, 3, device::Kind::cpu}),
                      std::pair(small_llama(), ActivationSizes{DType::bf16, 40, device::Kind::cpu}),
                      std::pair(small_qwen3(), ActivationSizes{DType::bf16, 2, device::Kind::cuda}),
                      std::pair(small_nanochat(),
                                ActivationSizes{DType::f32, 9, device::Kind::cpu})));

TEST(Recompute, IsToldInRuns) {
  using enum Recompute;
  EXPECT_EQ(recompute_text(block), "block");
  EXPECT_EQ(recompute_text(RecomputeKey(Words{block, block, gelu, none, none, none})),
            "block x 2, gelu, none x 3");
  EXPECT_THROW(recompute_text(RecomputeKey(Bytes{5})), ContractError);
}

/// Bytes without a choice, or a list for another model, are not a plan.
TEST(Recompute, OfAPlanIsAWordForEachBlock) {
  GptShape shape = small_shape();
  shape.recompute = RecomputeKey(Bytes{1 << 20});
  EXPECT_THROW(activation_plan(shape, DType::f32, 1, device::Kind::cpu), ContractError);
  EXPECT_NO_THROW(parameter_table(shape));
  shape.recompute = RecomputeKey(Words(3, Recompute::none));
  EXPECT_THROW(activation_plan(shape, DType::f32, 1, device::Kind::cpu), ContractError);
  shape.recompute = RecomputeKey(Words(2, Recompute::none));
  EXPECT_NO_THROW(activation_plan(shape, DType::f32, 1, device::Kind::cpu));
}

/// One block with `block` needs as much memory as without it; two blocks share one's memory.
TEST(Recompute, BlocksShareTheMemoryOfOne) {
  using enum Recompute;
  GptShape shape = small_shape();
  shape.layers = 4;
  const ActivationSizes sizes{DType::f32, 2, device::Kind::cpu};
  const auto bytes = [&](const Words& words) { return bytes_with(shape, sizes, words); };
  const std::int64_t all = bytes({none, none, none, none});
  EXPECT_EQ(bytes({none, none, block, none}), all);
  const std::int64_t inside = all - bytes({block, none, block, none});
  EXPECT_GT(inside, 0);
  EXPECT_EQ(bytes({block, none, none, block}), all - inside);
  EXPECT_EQ(bytes({block, block, none, block}), all - 2 * inside);
  const std::int64_t cheap = all - bytes({gelu, none, none, none});
  EXPECT_EQ(bytes({block, gelu, block, gelu}), all - inside - 2 * cheap);
}

}  // namespace
}  // namespace trireme::model::testing
