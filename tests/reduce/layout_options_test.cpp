// SPDX-License-Identifier: Apache-2.0
#include "reduce/layout_options.hpp"

#include <gtest/gtest.h>

namespace trireme::reduce {
namespace {

const std::vector<layout::Parameter> small{{"w", {1000, 834}}};
const std::vector<layout::Parameter> large{{"w", {1000, 1000, 1000}}};

TEST(AutoBuckets, HoldFortyMillionUntilAShardWouldBeLessThanAMessage) {
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

TEST(AutoBuckets, AreASixteenthOfTheModelWhereTheyTakeTurns) {
  ParallelConfig config;
  config.shard = layout::Shard::gradients;
  const std::vector<layout::Parameter> middle{{"w", {16, 20'000'000}}};
  EXPECT_EQ(bucket_elements(config, middle, 2, Wire::inside_a_host), 20'000'000);
  EXPECT_EQ(bucket_elements(config, large, 2, Wire::inside_a_host), 40'000'000);
  EXPECT_EQ(bucket_elements(config, small, 2, Wire::inside_a_host), 2 * 131'072) << "a message";
  EXPECT_EQ(bucket_elements(config, small, 8, Wire::inside_a_host), 834'000);
}

TEST(AutoBuckets, CountTheBytesThatTravel) {
  ParallelConfig config;
  config.gradient_dtype = GradientDType::bf16;
  EXPECT_EQ(bucket_elements(config, large, 4096, Wire::between_hosts), 4096 * 30'720);
}

TEST(AutoBuckets, HoldNoMoreThanTheModel) {
  EXPECT_EQ(bucket_elements({}, small, 2, Wire::inside_a_host), 834'000);
  EXPECT_EQ(bucket_elements({}, small, 4096, Wire::gpus), 834'000);
}

TEST(AutoBuckets, GiveWayToANumber) {
  ParallelConfig config;
  config.bucket_elements.value = 7;
  EXPECT_EQ(bucket_elements(config, large, 4096, Wire::gpus), 7);
  const layout::Plan plan(small, layout_options(config, small, 2, Wire::inside_a_host));
  EXPECT_EQ(plan.options().bucket_elements, 7);
  EXPECT_EQ(bucket_text(config, plan), "7 elements");
  const layout::Plan by_itself(small, layout_options({}, small, 2, Wire::inside_a_host));
  EXPECT_EQ(bucket_text({}, by_itself), "834 k elements: auto");
}

}  // namespace
}  // namespace trireme::reduce
