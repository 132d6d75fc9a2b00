// SPDX-License-Identifier: Apache-2.0
#include "reduce/layout_options.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace trireme::reduce {
namespace {

const std::vector<layout::Parameter> small{{"w", {1000, 834}}};
const std::vector<layout::Parameter> large{{"w", {1000, 1000, 1000}}};

TEST(AutoBuckets, HoldFortyMillionElementsUnlessAShardWouldBeLessThanAMessage) {
  const ParallelConfig config;
  const auto elements = [&](int ranks, Wire wire) {
    return bucket_elements(config, large, ranks, wire);
  };
  EXPECT_EQ(elements(2, Wire::inside_a_host), 40'000'000);
  EXPECT_EQ(elements(305, Wire::inside_a_host), 40'000'000);
  EXPECT_EQ(elements(306, Wire::inside_a_host), 306 * 131'072);
  EXPECT_EQ(elements(2604, Wire::between_hosts), 40'000'000);
  EXPECT_EQ(elements(4096, Wire::between_hosts), 4096 * 15'360) << "60 KiB for each rank";
  EXPECT_EQ(elements(40, Wire::gpus), 40'000'000);
  EXPECT_EQ(elements(512, Wire::gpus), 512'000'000);
}

TEST(AutoBuckets, AreASixteenthOfTheModelWhereTheyShareSlots) {
  ParallelConfig config;
  config.shard = layout::Shard::gradients;
  const std::vector<layout::Parameter> middle{{"w", {16, 20'000'000}}};
  EXPECT_EQ(bucket_elements(config, middle, 2, Wire::inside_a_host), 20'000'000);
  EXPECT_EQ(bucket_elements(config, large, 2, Wire::inside_a_host), 40'000'000);
  EXPECT_EQ(bucket_elements(config, small, 2, Wire::inside_a_host), 2 * 131'072) << "a message";
}

/// Several buckets let sending overlap with backward.
TEST(AutoBuckets, AreASixteenthOfTheModelBetweenHosts) {
  const std::vector<layout::Parameter> middle{{"w", {16, 20'000'000}}};
  const auto elements = [&](int ranks, Wire wire) {
    return bucket_elements({}, middle, ranks, wire);
  };
  EXPECT_EQ(elements(2, Wire::between_hosts), 20'000'000);
  EXPECT_EQ(elements(1302, Wire::between_hosts), 20'000'000);
  EXPECT_EQ(elements(1303, Wire::between_hosts), 1303 * 15'360) << "60 KiB for each rank";
  EXPECT_EQ(elements(2, Wire::inside_a_host), 40'000'000);
  EXPECT_EQ(elements(2, Wire::gpus), 40'000'000);
  EXPECT_EQ(bucket_elements({}, small, 2, Wire::between_hosts), 834'000 / 16);
}

/// Beyond sqrt(model / message) ranks they would need more memory than the shards save.
TEST(AutoBuckets, ThatShareSlotsGrowWithTheRanksUpToTheMeanOfModelAndMessage) {
  ParallelConfig config;
  config.shard = layout::Shard::gradients;
  EXPECT_EQ(bucket_elements(config, small, 8, Wire::inside_a_host), 330'626);
  const std::vector<layout::Parameter> huge{{"w", {10'000, 640'000}}};
  const auto elements = [&](int ranks) { return bucket_elements(config, huge, ranks, Wire::gpus); };
  EXPECT_EQ(elements(40), 40'000'000);
  EXPECT_EQ(elements(64), 64'000'000);
  EXPECT_EQ(elements(80), 80'000'000);
  EXPECT_EQ(elements(81), 80'000'000);
  EXPECT_EQ(elements(4096), 80'000'000);
  config.shard = layout::Shard::optimizer;
  EXPECT_EQ(elements(4096), 4'096'000'000) << "with whole gradients";
}

TEST(AutoBuckets, HoldALayerWhereParametersShareSlots) {
  std::vector<layout::Parameter> layers;
  for (int layer = 0; layer < 12; ++layer)
    layers.push_back({"w" + std::to_string(layer), {10'000, 20'000}, false, false, {}, layer});
  ParallelConfig config;
  config.shard = layout::Shard::parameters;
  for (const int ranks : {1, 64, 4096})
    EXPECT_EQ(bucket_elements(config, layers, ranks, Wire::gpus), 200'000'000) << ranks;
}

TEST(AutoBuckets, CountTheRanksOfOneReplica) {
  ParallelConfig config;
  const auto elements = [&](int replicas) {
    return layout_options(config, large, {512, replicas}, Wire::gpus).bucket_elements;
  };
  EXPECT_EQ(elements(1), 512'000'000);
  EXPECT_EQ(elements(2), 256'000'000);
  EXPECT_EQ(elements(64), 40'000'000);
  config.reduction = comm::Reduction::ordered;
  EXPECT_EQ(elements(64), 512'000'000)
      << "whole buckets are sent between the ranks of all replicas";
}

TEST(AutoBuckets, CountTheBytesThatAreSent) {
  ParallelConfig config;
  config.gradient_dtype = GradientDType::bf16;
  EXPECT_EQ(bucket_elements(config, large, 4096, Wire::between_hosts), 4096 * 30'720);
}

TEST(AutoBuckets, HoldNoMoreThanTheModel) {
  EXPECT_EQ(bucket_elements({}, small, 2, Wire::inside_a_host), 834'000);
  EXPECT_EQ(bucket_elements({}, small, 4096, Wire::gpus), 834'000);
}

TEST(AutoBuckets, HaveTheSizeThatTheDeckGives) {
  ParallelConfig config;
  config.bucket_elements.value = 7;
  EXPECT_EQ(bucket_elements(config, large, 4096, Wire::gpus), 7);
  const layout::Plan plan(small, layout_options(config, small, {2, 1}, Wire::inside_a_host));
  EXPECT_EQ(plan.options().bucket_elements, 7);
  EXPECT_EQ(bucket_text(config, plan), "7 elements");
  const layout::Plan alone(small, layout_options({}, small, {2, 1}, Wire::inside_a_host));
  EXPECT_EQ(bucket_text({}, alone), "834 k elements: auto");
}

TEST(Replicas, DivideTheRanksIntoGroupsOfSeveral) {
  ParallelConfig config;
  EXPECT_EQ(replicas(config, 7, 3, false).text(), "1 replica of 7 ranks") << "none";
  config.replicate.keyword = Replicate::node;
  EXPECT_EQ(replicas(config, 8, 1, false).count(), 1) << "one host";
  EXPECT_EQ(replicas(config, 8, 2, false).text(), "2 replicas of 4 ranks");
  EXPECT_EQ(replicas_problem(config, 8, 3, false),
            "node: 8 ranks on 3 hosts, but every replica needs the same number of ranks");
  EXPECT_THROW((void)replicas(config, 8, 3, false), UserError);
  EXPECT_EQ(replicas_problem(config, 3, 3, false),
            "node: 3 ranks on 3 hosts, but replicas of one rank have no shards; use fewer "
            "replicas, or parallel.shard: none");
  config.replicate.keyword = Replicate::rank;
  EXPECT_EQ(replicas_problem(config, 5, 2, false),
            "rank: 5 ranks on 2 hosts, but replicas of one rank have no shards; use fewer "
            "replicas, or parallel.shard: none");
  config.replicate.number = 4;
  EXPECT_EQ(replicas(config, 8, 1, false).count(), 4);
  EXPECT_EQ(replicas_problem(config, 6, 1, false),
            "4 replicas on 6 ranks, but every replica needs the same number of ranks");
  EXPECT_THROW((void)replicas(config, 6, 1, false), UserError);
  config.replicate.number = 1;
  EXPECT_EQ(replicas(config, 5, 5, false).count(), 1);
}

TEST(Replicas, MayDifferWithLocalSteps) {
  ParallelConfig config;
  config.replicate.keyword = Replicate::node;
  EXPECT_EQ(replicas(config, 8, 3, true).text(), "3 replicas of 2 ranks or more");
  EXPECT_EQ(replicas_problem(config, 3, 3, true), "");
  config.replicate.keyword = Replicate::rank;
  EXPECT_EQ(replicas(config, 5, 2, true).text(), "5 replicas of 1 rank");
  config.replicate.number = 4;
  EXPECT_EQ(replicas(config, 6, 1, true).text(), "4 replicas of 1 rank or more");
  EXPECT_EQ(replicas_problem(config, 3, 1, true),
            "4 replicas on 3 ranks, but every replica needs a rank");
  config.replicate.number = 64;
  EXPECT_NE(replicas_problem(config, 64 * 37 + 5, 64, true).find("pad every bucket"),
            std::string::npos);
}

TEST(Replicas, DoNotChangeBuckets) {
  const std::vector<layout::Parameter> parameters{{"a", {1000, 834}}, {"b", {500, 500}}};
  const auto plan_of = [&](int replicas) {
    return layout::Plan(parameters,
                        layout_options({}, parameters, {8, replicas}, Wire::inside_a_host));
  };
  const layout::Plan one = plan_of(1), two = plan_of(2);
  EXPECT_EQ(two.ranks(), 4);
  EXPECT_EQ(two.all_ranks(), 8);
  EXPECT_EQ(two.flat_elements(), one.flat_elements()) << "the padding is that of all ranks";
  EXPECT_EQ(two.owned_elements(), 2 * one.owned_elements());
}

}  // namespace
}  // namespace trireme::reduce
