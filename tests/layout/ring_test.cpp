// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "layout/residency.hpp"

namespace trireme::layout {
namespace {

/// One bucket per size, in this order; negative: a parameter with own_bucket.
Plan plan_of(const std::vector<std::int64_t>& sizes, Padding padding = Padding::aligned) {
  std::vector<Parameter> table;
  for (auto size = sizes.rbegin(); size != sizes.rend(); ++size)
    table.push_back({std::to_string(table.size()), {std::max(*size, -*size)}, *size < 0});
  return {table, {1, 1, padding}};
}

std::vector<std::int64_t> begins(const Ring& ring, const Plan& plan) {
  std::vector<std::int64_t> all;
  for (std::size_t b = 0; b < plan.buckets().size(); ++b)
    all.push_back(ring.begin(static_cast<BucketIndex>(b)));
  return all;
}

TEST(Ring, SharesThreeSlotsOfTheSizeOfTheirLargestBucket) {
  const Plan plan = plan_of({128, 256, 128, 512, 128, 128, 128});
  const Ring ring(plan);
  EXPECT_EQ(ring.num_slots(), 3U);
  EXPECT_EQ(begins(ring, plan), (std::vector<std::int64_t>{0, 512, 768, 0, 512, 768, 0}));
  EXPECT_EQ(ring.elements(), 512 + 256 + 128);
}

TEST(Ring, GivesADedicatedBucketItsOwnSlot) {
  const Plan plan = plan_of({128, 128, -1024, 128, 128, -256});
  const Ring ring(plan);
  EXPECT_EQ(ring.num_slots(), 5U);
  EXPECT_EQ(begins(ring, plan), (std::vector<std::int64_t>{0, 128, 384, 256, 0, 1408}));
  EXPECT_EQ(ring.elements(), 3 * 128 + 1024 + 256);
}

TEST(Ring, HasNoMoreSlotsThanBuckets) {
  const Plan one = plan_of({128}), tied = plan_of({-128});
  EXPECT_EQ(Ring(one).elements(), 128);
  EXPECT_EQ(Ring(tied).elements(), 128);
  EXPECT_EQ(Ring(tied).num_slots(), 1U);
}

TEST(Ring, BeginsSlotsWhereBucketsMayBegin) {
  const Plan plan = plan_of({65, 129, 1, 7}, Padding::none);
  const Ring ring(plan);
  EXPECT_EQ(begins(ring, plan), (std::vector<std::int64_t>{0, 128, 320, 0}));
  EXPECT_EQ(ring.elements(), 321);
}

TEST(Ring, IsForBucketsInTheOrderOfBackward) {
  const Plan plan({{"a", {3}}}, {1, 1, Padding::aligned, BucketOrder::registration});
  EXPECT_THROW(Ring{plan}, ContractError);
}

}  // namespace
}  // namespace trireme::layout
