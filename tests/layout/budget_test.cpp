// SPDX-License-Identifier: Apache-2.0
#include "layout/budget.hpp"

#include <gtest/gtest.h>

#include "layout/models.hpp"

namespace trireme::layout {
namespace {

using namespace testing;

const StateSlots adam_slots = {{"master", ""}, {"moment1", ""}, {"moment2", ""}};

TEST(Budget, OfASmallPlanIsWhatAPencilSays) {
  // Two buckets: p1 alone (200 -> 256 elements at two ranks), p0 alone (100 -> 128).
  const Plan plan(table_of({100, 200}), {2, 150, Padding::aligned});
  const Budget budget = budget_of(plan, adam_slots, DType::bf16, true);
  ASSERT_EQ(budget.buckets.size(), 2U);
  EXPECT_EQ(budget.buckets[0].first, ParameterIndex{1});
  EXPECT_EQ(budget.buckets[0].elements, 256);
  EXPECT_EQ(budget.buckets[0].padding, 56);
  EXPECT_EQ(budget.buckets[0].shard_elements, 128);
  EXPECT_EQ(budget.buckets[0].gradient_alignment_bytes, 512);
  EXPECT_EQ(budget.buckets[1].begin, 256);
  EXPECT_EQ(budget.buckets[1].shard_elements, 64);
  EXPECT_EQ(budget.buckets[1].parameter_alignment_bytes, 128);
  EXPECT_EQ(budget.gradient_bytes, 384 * 4);
  EXPECT_EQ(budget.parameter_bytes, 384 * 2);
  EXPECT_EQ(budget.state_bytes, (std::vector<std::int64_t>{192 * 4, 192 * 4, 192 * 4}));
  EXPECT_EQ(budget.held_bytes(), 384 * 6 + 192 * 12);
  EXPECT_EQ(budget.gradient_wire_bytes, 192 * 4);
  EXPECT_EQ(budget.parameter_wire_bytes, 192 * 2);

  const Budget whole = budget_of(plan, adam_slots, DType::f32, false);
  EXPECT_EQ(whole.state_bytes, (std::vector<std::int64_t>{0, 384 * 4, 384 * 4}));
  EXPECT_EQ(whole.gradient_wire_bytes, 2 * 192 * 4);
  EXPECT_EQ(whole.parameter_wire_bytes, 0);
}

TEST(Budget, OfNarrowGradientsHoldsACopyAndSendsHalf) {
  const Plan plan(table_of({100, 200}), {2, 150, Padding::aligned});
  const Budget budget = budget_of(plan, adam_slots, DType::f32, true, DType::bf16);
  // The copy has the memory of one bucket.
  EXPECT_EQ(budget.gradient_bytes, 384 * 4 + plan.largest_bucket() * 2);
  EXPECT_LT(plan.largest_bucket(), 384);
  EXPECT_EQ(budget.gradient_wire_bytes, 192 * 2);
  const Plan alone(table_of({100, 200}), {1, 150, Padding::aligned});
  EXPECT_EQ(budget_of(alone, adam_slots, DType::f32, true, DType::bf16).gradient_bytes, 384 * 4);
}

TEST(Budget, OfOtherRanksCountsWhatIsReadOfThem) {
  const Plan plan(table_of({100, 200}), {4, 150, Padding::aligned});
  const std::int64_t elements = plan.flat_elements();
  const std::int64_t sums = step_sum_elements(4) * 8;
  // All ranks on one host: a quarter of each other rank's wire and parameters; its sums twice.
  EXPECT_EQ(peer_bytes(plan, DType::f32, true, DType::bf16, 4),
            3 * (plan.largest_bucket() / 4 * 2 + elements / 4 * 4 + 2 * sums / 4));
  // Two hosts: a half of the one other rank's.
  EXPECT_EQ(peer_bytes(plan, DType::bf16, true, DType::f32, 2), elements / 2 * (4 + 2) + sums);
  // Not sharded: sums of gradients are gathered, and parameters are nobody's business.
  EXPECT_EQ(peer_bytes(plan, DType::bf16, false, DType::f32, 4),
            3 * (elements / 4 * (4 + 4) + 2 * sums / 4));
  EXPECT_EQ(peer_bytes(plan, DType::f32, true, DType::f32, 1), 0);
}

TEST(Budget, OfPartialSumsHoldsOneMoreArenaEachAndSendsNoMore) {
  const Plan plan(table_of({100, 200}), {2, 150, Padding::aligned});
  const Budget budget = budget_of(plan, adam_slots, DType::f32, true, DType::f32, 3);
  EXPECT_EQ(budget.gradient_bytes, 384 * 4 * 4);
  EXPECT_EQ(budget.gradient_wire_bytes, 192 * 4);
}

TEST(Budget, OfASnapshotHoldsThreeCopiesOfWhatIsOwnedShardedOrNot) {
  const Plan plan(table_of({100, 200}), {2, 150, Padding::aligned});
  for (const bool sharded : {true, false}) {
    const Budget without = budget_of(plan, adam_slots, DType::bf16, sharded);
    const Budget with = budget_of(plan, adam_slots, DType::bf16, sharded, DType::f32, 0, true);
    EXPECT_EQ(without.snapshot_bytes, 0);
    EXPECT_EQ(with.snapshot_bytes, 192 * 4 * 3);
    EXPECT_EQ(with.held_bytes(), without.held_bytes() + 192 * 12);
  }
}

TEST(Budget, OfOneRankSendsNothing) {
  const Plan plan(table_of({100, 200}), {1, 150, Padding::aligned});
  EXPECT_EQ(budget_of(plan, adam_slots, DType::bf16, true).wire_bytes(), 0);
  EXPECT_EQ(budget_of(plan, adam_slots, DType::bf16, false).wire_bytes(), 0);
}

TEST(Budget, ShowsShardsThatLoseTheirAlignment) {
  // The golden table's case: Megatron's granule leaves odd shards of the 1.5B model at 128 ranks.
  const auto table = gpt2_table(gpt2_1558m);
  const auto worst = [&](Padding padding) {
    std::int64_t bytes = 1 << 30;
    for (const BucketRow& row :
         budget_of(Plan(table, {128, 128'000'000, padding}), adam_slots, DType::bf16, true).buckets)
      bytes = std::min(bytes, row.parameter_alignment_bytes);
    return bytes;
  };
  EXPECT_EQ(worst(Padding::megatron), 2);
  EXPECT_GE(worst(Padding::aligned), 128);
}

TEST(Budget, CountsRanksThatOwnPaddingOnly) {
  const Plan plan(table_of({100}), {4, 1000, Padding::aligned});
  EXPECT_EQ(budget_of(plan, adam_slots, DType::f32, true).buckets[0].num_padding_only_ranks, 2);
}

TEST(Budget, OfTheOptimizerFallsAsOneOverRanks) {
  const auto table = gpt2_table(gpt2_124m);
  const auto state = [&](int ranks) {
    const Budget budget = budget_of(Plan(table, {ranks, 40'000'000, Padding::aligned}), adam_slots,
                                    DType::bf16, true);
    return budget.all_state_bytes();
  };
  const std::int64_t one = state(1);
  for (const int ranks : {2, 3, 7, 64, 97, 512, 4096}) {
    EXPECT_GE(state(ranks) * ranks, one);
    EXPECT_LE(state(ranks) * ranks * 1000, one * 1010) << ranks << " ranks: padding above 1 %";
  }
}

}  // namespace
}  // namespace trireme::layout
