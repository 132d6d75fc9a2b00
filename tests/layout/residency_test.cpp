// SPDX-License-Identifier: Apache-2.0
#include "layout/residency.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

namespace trireme::layout {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// A model: for each layer, sizes in registration order; negative: a dedicated bucket.
using Layers = std::vector<std::vector<std::int64_t>>;

Plan layered_plan(const Layers& layers,
                  std::int64_t bucket_elements = 1,
                  bool whole_groups = false) {
  std::vector<Parameter> table;
  for (std::size_t l = 0; l < layers.size(); ++l)
    for (const std::int64_t size : layers[l]) {
      table.push_back({std::to_string(table.size()), {std::max(size, -size)}, size < 0});
      table.back().group = static_cast<int>(l);
    }
  return {table, {1, bucket_elements, Padding::aligned, BucketOrder::reverse, {}, whole_groups}};
}

std::vector<ParameterIndex> layer(const Plan& plan, int group) {
  std::vector<ParameterIndex> all;
  for (std::size_t p = 0; p < plan.parameters().size(); ++p)
    if (plan.parameters()[p].group == group)
      all.push_back(static_cast<ParameterIndex>(p));
  return all;
}

std::vector<std::size_t> buckets(std::span<const Residency::Gather> gathers) {
  std::vector<std::size_t> all;
  for (const Residency::Gather& one : gathers) all.push_back(at(one.bucket));
  return all;
}

std::vector<std::size_t> use(Residency& residency, const Plan& plan, int group) {
  return buckets(residency.use(layer(plan, group)));
}

std::vector<std::size_t> update_all(Residency& residency, const Plan& plan) {
  std::vector<std::size_t> all;
  for (std::size_t b = plan.buckets().size(); b-- > 0;)
    for (const std::size_t bucket : buckets(residency.update(static_cast<BucketIndex>(b))))
      all.push_back(bucket);
  return all;
}

TEST(Residency, GathersALayerAndTheNextOneForwardAndAgainBackward) {
  const Plan plan = layered_plan({{128}, {128}, {128}, {128}, {128}});  // buckets 4 … 0
  Residency residency(plan, {1});
  EXPECT_EQ(residency.ring().num_slots(), 2U);
  EXPECT_THAT(update_all(residency, plan), ElementsAre(4, 3));
  EXPECT_THAT(use(residency, plan, 0), IsEmpty());
  EXPECT_THAT(use(residency, plan, 1), ElementsAre(2));
  EXPECT_THAT(use(residency, plan, 2), ElementsAre(1));
  EXPECT_THAT(use(residency, plan, 3), ElementsAre(0));
  EXPECT_THAT(use(residency, plan, 4), IsEmpty());
  EXPECT_THAT(use(residency, plan, 3), ElementsAre(2)) << "forward has left 1 and 0";
  EXPECT_THAT(use(residency, plan, 2), ElementsAre(3));
  EXPECT_THAT(use(residency, plan, 1), IsEmpty()) << "backward does not read the embedding";
  EXPECT_THAT(buckets(residency.begin_forward()), ElementsAre(4));
  EXPECT_THAT(use(residency, plan, 0), IsEmpty());
  EXPECT_THAT(use(residency, plan, 1), ElementsAre(2));
}

TEST(Residency, GathersNothingAheadWithoutPrefetch) {
  const Plan plan = layered_plan({{128}, {128}, {128}});
  Residency residency(plan, {0});
  EXPECT_EQ(residency.ring().num_slots(), 1U);
  EXPECT_THAT(update_all(residency, plan), ElementsAre(2));
  EXPECT_THAT(use(residency, plan, 0), IsEmpty());
  const auto gathers = residency.use(layer(plan, 1));
  ASSERT_EQ(gathers.size(), 1U);
  EXPECT_EQ(gathers[0].bucket, BucketIndex{1});
  EXPECT_EQ(gathers[0].evicted, BucketIndex{2});
}

TEST(Residency, GathersABucketOfSeveralLayersOnceEachWay) {
  const Plan plan = layered_plan({{64}, {64}, {64}, {64}, {64}, {64}, {64}, {64}}, 128);
  ASSERT_EQ(plan.buckets().size(), 4U);
  Residency residency(plan, {1});
  EXPECT_THAT(update_all(residency, plan), ElementsAre(3, 2));
  EXPECT_THAT(use(residency, plan, 0), IsEmpty());
  EXPECT_THAT(use(residency, plan, 1), IsEmpty());
  EXPECT_THAT(use(residency, plan, 2), ElementsAre(1));
  EXPECT_THAT(use(residency, plan, 3), IsEmpty());
  EXPECT_THAT(use(residency, plan, 4), ElementsAre(0));
  for (const int group : {5, 6, 7, 6}) EXPECT_THAT(use(residency, plan, group), IsEmpty());
  EXPECT_THAT(use(residency, plan, 5), ElementsAre(2));
  EXPECT_THAT(use(residency, plan, 4), IsEmpty());
  EXPECT_THAT(use(residency, plan, 3), ElementsAre(3));
  for (const int group : {2, 1}) EXPECT_THAT(use(residency, plan, group), IsEmpty());
}

TEST(Residency, KeepsDedicatedBuckets) {
  const Plan plan = layered_plan({{-512}, {128}, {128}, {128}, {128}});
  Residency residency(plan, {1});
  EXPECT_EQ(residency.ring().num_slots(), 3U);
  EXPECT_THAT(update_all(residency, plan), ElementsAre(4, 3));
  EXPECT_THAT(use(residency, plan, 0), IsEmpty());
  EXPECT_THAT(use(residency, plan, 1), ElementsAre(2));
  for (const int group : {2, 3, 4, 3, 2, 1, 0})
    for (const std::size_t bucket : use(residency, plan, group)) EXPECT_NE(bucket, 4U);
}

TEST(Residency, HoldsAllBucketsOfALayerAtATime) {
  const Plan plan = layered_plan({{128}, {128, 128, 128}, {128, 128}, {128}});
  EXPECT_EQ(Residency(plan, {0}).ring().num_slots(), 3U);
  EXPECT_EQ(Residency(plan, {2}).ring().num_slots(), 5U);
  EXPECT_EQ(Residency(plan, {100}).ring().num_slots(), 7U);
}

TEST(Residency, WithoutReshardingGathersEachBucketOnceUntilItsUpdate) {
  const Plan plan = layered_plan({{-512}, {128}, {128}, {128, 128}, {128}});  // 5, 4 … 0
  Residency residency(plan, {1, false});
  EXPECT_FALSE(residency.shares_slots());
  EXPECT_EQ(residency.ring().num_slots(), plan.buckets().size());
  EXPECT_EQ(residency.ring().elements(), plan.flat_elements());
  EXPECT_THAT(update_all(residency, plan), ElementsAre(5, 4));
  EXPECT_THAT(use(residency, plan, 0), IsEmpty());
  EXPECT_THAT(use(residency, plan, 1), ElementsAre(3));
  EXPECT_THAT(use(residency, plan, 2), ElementsAre(2));
  EXPECT_THAT(use(residency, plan, 3), ElementsAre(1, 0));
  for (const int group : {4, 3, 2, 1, 0}) EXPECT_THAT(use(residency, plan, group), IsEmpty());
  EXPECT_THAT(buckets(residency.begin_forward()), IsEmpty()) << "of the next micro-step";
  for (const int group : {0, 1, 2, 3, 4, 3}) EXPECT_THAT(use(residency, plan, group), IsEmpty());
  EXPECT_THAT(update_all(residency, plan), ElementsAre(5, 4));
  EXPECT_THAT(buckets(residency.use_all()), ElementsAre(3, 2, 1, 0)) << "before an evaluation";
  EXPECT_THAT(buckets(residency.use_all()), IsEmpty());
  for (const std::int64_t micro_steps : {1, 3})
    EXPECT_EQ(gathered_elements(plan, {1, false}, micro_steps), plan.flat_elements());
  EXPECT_GT(gathered_elements(plan, {1, true}, 1), plan.flat_elements());
  Residency with_turns(plan, {1, true});
  EXPECT_THROW(static_cast<void>(with_turns.use_all()), ContractError);
}

TEST(Residency, RefusesToEvictABucketInUse) {
  const Plan plan = layered_plan({{128}, {128}, {128}, {128}});
  Residency residency(plan, {0});
  const std::vector<ParameterIndex> too_many{ParameterIndex{0}, ParameterIndex{1}};
  EXPECT_THROW(static_cast<void>(residency.use(too_many)), ContractError);
}

/// For any model, buckets and prefetch, the buckets that a layer reads are complete and current.
TEST(Residency, HasTheBucketsOfALayerInAnyModel) {
  std::mt19937 random(5);
  const auto below = [&](int end) {
    return std::uniform_int_distribution<int>(0, end - 1)(random);
  };
  for (int model = 0; model < 300; ++model) {
    Layers layers;
    const int num_layers = 1 + below(7);
    for (int l = 0; l < num_layers; ++l)
      for (int p = -1; p < below(4); ++p) {
        layers.resize(static_cast<std::size_t>(l) + 1);
        layers.back().push_back(1 + below(500));
      }
    if (below(2) == 0)
      layers[0][0] = -layers[0][0];
    const Plan plan = layered_plan(layers, 1 + below(1500), below(2) == 0);
    const GatherOptions options{below(4), below(3) > 0};
    Residency residency(plan, options);
    std::vector<int> versions(plan.buckets().size());
    std::map<std::size_t, std::pair<std::size_t, int>> slots;  // bucket, version
    std::int64_t elements = 0;
    const auto run = [&](std::span<const Residency::Gather> gathers) {
      for (const Residency::Gather& one : gathers) {
        slots[residency.ring().slot(one.bucket)] = {at(one.bucket), versions[at(one.bucket)]};
        elements += plan.bucket(one.bucket).elements;
      }
    };
    const auto expect_there = [&](int group) {
      for (const ParameterIndex parameter : layer(plan, group)) {
        const BucketIndex bucket = plan.placement(parameter).bucket;
        EXPECT_EQ(slots[residency.ring().slot(bucket)],
                  (std::pair{at(bucket), versions[at(bucket)]}));
      }
    };
    const auto walk = [&](bool trains) {
      for (int group = 0; group < num_layers; ++group) {
        run(residency.use(layer(plan, group)));
        expect_there(group);
      }
      for (int group = num_layers - 1; trains && group > 0; --group) {
        run(residency.use(layer(plan, group)));
        expect_there(group);
      }
    };
    for (int step = 0; step < 3; ++step) {
      elements = 0;
      walk(true);
      run(residency.begin_forward());
      walk(true);
      for (std::size_t b = plan.buckets().size(); b-- > 0;) {
        ++versions[b];
        run(residency.update(static_cast<BucketIndex>(b)));
      }
      if (step > 0) {
        EXPECT_EQ(elements, gathered_elements(plan, options, 2));
      }
    }
    walk(false);  // an evaluation pass
    walk(true);
  }
}

}  // namespace
}  // namespace trireme::layout
