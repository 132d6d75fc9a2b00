// SPDX-License-Identifier: Apache-2.0
#include "layout/state.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "layout/budget.hpp"

namespace trireme::layout {
namespace {

const StateSlot of_all{"moment1", "first moments"};
const StateSlot of_others{"moment2", "second moments", false};

Plan plan_of(int ranks, std::int64_t bucket_elements = 700) {
  return {{{"wte", {23, 17}, true, true},
           {"qkv", {41, 20}, false, true, {14, 13, 14}},
           {"qkv.bias", {41}, false, false},
           {"fc", {37, 20}, false, true, {37}},
           {"gain", {7}, false, false}},
          {ranks, bucket_elements, Padding::aligned}};
}
constexpr std::int64_t without_matrices = 23 * 17 + 41 + 7;

/// Element ranges [begin, end) of a slot in the memory of one rank, or without sharding.
std::vector<std::pair<std::int64_t, std::int64_t>> ranges(const Plan& plan,
                                                          const StateSlot& slot,
                                                          std::optional<int> rank) {
  const auto begins = slot_begins(plan, slot, rank);
  std::vector<std::pair<std::int64_t, std::int64_t>> all;
  for (std::size_t b = 0; b < plan.buckets().size(); ++b) {
    const auto bucket = static_cast<BucketIndex>(b);
    const auto pieces = rank ? plan.find_pieces(bucket, *rank)
                             : plan.find_pieces(bucket, 0, plan.bucket(bucket).elements);
    const auto places = places_in_slot(plan, slot, begins[b], pieces);
    EXPECT_EQ(places.size(), pieces.size());
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      EXPECT_EQ(places[i] >= 0, slot.has(plan.parameter(pieces[i].parameter)));
      if (places[i] < 0)
        continue;
      all.emplace_back(places[i], places[i] + pieces[i].elements);
      EXPECT_LE(all.back().second, begins[b + 1]);
    }
  }
  return all;
}

TEST(StateSlots, OfAllParametersHaveTheLayoutOfShards) {
  for (const int ranks : {1, 2, 3, 5}) {
    const Plan plan = plan_of(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      const auto begins = slot_begins(plan, of_all, rank);
      for (std::size_t b = 0; b < plan.buckets().size(); ++b)
        EXPECT_EQ(begins[b], plan.owned_begin(static_cast<BucketIndex>(b)));
      EXPECT_EQ(begins.back(), plan.owned_elements());
    }
    EXPECT_EQ(slot_begins(plan, of_all, std::nullopt).back(), plan.flat_elements());
    EXPECT_EQ(most_slot_elements(plan, of_all, true), plan.owned_elements());
    EXPECT_EQ(most_slot_elements(plan, of_all, false), plan.flat_elements());
  }
}

TEST(StateSlots, WithoutMatricesHoldOtherParametersOnce) {
  for (const int ranks : {1, 2, 3, 5})
    for (const std::int64_t bucket_elements : {1, 700, 40'000}) {
      const Plan plan = plan_of(ranks, bucket_elements);
      std::int64_t elements = 0, most = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        auto all = ranges(plan, of_others, rank);
        std::int64_t end = 0;
        for (const auto& [begin, after] : all) {
          EXPECT_GE(begin, end);
          EXPECT_EQ(begin % 16, 0);
          elements += after - begin;
          end = after;
        }
        const std::int64_t kept = slot_begins(plan, of_others, rank).back();
        EXPECT_LT(kept - end, 16);
        most = std::max(most, kept);
      }
      EXPECT_EQ(elements, without_matrices);
      EXPECT_EQ(most_slot_elements(plan, of_others, true), most);
      std::int64_t whole = 0;
      for (const auto& [begin, after] : ranges(plan, of_others, std::nullopt))
        whole += after - begin;
      EXPECT_EQ(whole, without_matrices);
    }
}

TEST(StateSlots, WithoutMatricesMakeBudgetAndSnapshotSmaller) {
  const Plan plan = plan_of(2);
  const StateSlots slots = {{"master", ""}, of_all, of_others};
  const Budget budget = budget_of(plan, slots, {.parameter_dtype = DType::bf16});
  EXPECT_EQ(budget.state_bytes[1], 4 * plan.owned_elements());
  EXPECT_EQ(budget.state_bytes[2], 4 * most_slot_elements(plan, of_others, true));
  EXPECT_LT(budget.state_bytes[2], budget.state_bytes[1]);
  EXPECT_EQ(snapshot_bytes(plan, slots), budget.all_state_bytes());
}

TEST(StateSlots, InBf16TakeHalf) {
  const Plan plan = plan_of(3);
  const StateSlots wide = {{"master", ""}, of_all, of_others};
  StateSlots narrow = wide;
  narrow[1].dtype = narrow[2].dtype = DType::bf16;
  for (const Shard shard : {Shard::none, Shard::optimizer}) {
    const BudgetOptions options{.parameter_dtype = DType::bf16, .shard = shard};
    const Budget before = budget_of(plan, wide, options), after = budget_of(plan, narrow, options);
    EXPECT_EQ(after.state_bytes[0], before.state_bytes[0]);
    for (const std::size_t slot : {1U, 2U})
      EXPECT_EQ(2 * after.state_bytes[slot], before.state_bytes[slot]);
  }
  EXPECT_EQ(snapshot_bytes(plan, narrow),
            snapshot_bytes(plan, {wide[0]}) +
                (snapshot_bytes(plan, {wide[1]}) + snapshot_bytes(plan, {wide[2]})) / 2);
}

}  // namespace
}  // namespace trireme::layout
