// SPDX-License-Identifier: Apache-2.0
// Golden vectors: the layouts of Megatron-LM's rule for GPT-2 shapes (no own bucket,
// bucket_elements = max(40M, 1M * ranks)), computed independently of this code.
#include <algorithm>
#include <limits>
#include <tuple>

#include <gtest/gtest.h>

#include "layout/models.hpp"

namespace trireme::layout {
namespace {

using namespace testing;

struct Golden {
  Gpt2 model;
  std::int64_t parameters;
  int ranks;
  std::size_t buckets;
  std::int64_t padded, padded_high_bandwidth, shard_power_of_two;
};

const Golden golden_rows[] = {
    {gpt2_124m, 124'475'904, 8, 3, 124'475'904, 124'518'400, 64},
    {gpt2_124m, 124'475'904, 97, 1, 124'482'816, 127'139'840, 256},
    {gpt2_124m, 124'475'904, 1000, 1, 124'480'000, 131'072'000, 64},
    {gpt2_350m, 354'871'296, 8, 8, 354'871'296, 355'074'048, 128},
    {gpt2_350m, 354'871'296, 96, 4, 354'871'680, 355'467'264, 4},
    {gpt2_774m, 774'090'240, 8, 17, 774'090'240, 774'569'984, 32},
    {gpt2_1558m, 1'557'686'400, 8, 37, 1'557'687'936, 1'559'101'440, 16},
    {gpt2_1558m, 1'557'686'400, 64, 22, 1'557'687'424, 1'558'511'616, 2},
    {gpt2_1558m, 1'557'686'400, 97, 15, 1'557'748'608, 1'640'103'936, 128},
    {gpt2_1558m, 1'557'686'400, 128, 12, 1'557'686'656, 1'557'987'328, 1},
    {gpt2_6700m, 6'658'596'864, 8, 97, 6'658'596'864, 6'663'241'728, 512},
    {gpt2_6700m, 6'658'596'864, 128, 49, 6'658'596'864, 6'660'096'000, 32},
    {gpt2_6700m, 6'658'596'864, 1024, 7, 6'658'596'864, 6'658'916'352, 4},
    {gpt2_6700m, 6'658'596'864, 4096, 2, 6'658'596'864, 6'658'654'208, 1},
};

Options megatron_options(int ranks, Padding padding) {
  return {ranks, std::max<std::int64_t>(40'000'000, std::int64_t{1'000'000} * ranks), padding};
}

class GoldenLayout : public ::testing::TestWithParam<Golden> {};

TEST_P(GoldenLayout, IsTheOneOfTheRule) {
  const Golden& row = GetParam();
  const Plan plan(gpt2_table(row.model), megatron_options(row.ranks, Padding::megatron));
  EXPECT_EQ(plan.parameter_elements(), row.parameters);
  EXPECT_EQ(plan.buckets().size(), row.buckets);
  EXPECT_EQ(plan.flat_elements(), row.padded);
  std::int64_t power = std::numeric_limits<std::int64_t>::max();
  for (const Bucket& bucket : plan.buckets())
    power = std::min(power, bucket.shard_elements & -bucket.shard_elements);
  EXPECT_EQ(power, row.shard_power_of_two);

  const Plan wide(gpt2_table(row.model),
                  megatron_options(row.ranks, Padding::megatron_high_bandwidth));
  EXPECT_EQ(wide.buckets().size(), row.buckets);
  EXPECT_EQ(wide.flat_elements(), row.padded_high_bandwidth);
}

INSTANTIATE_TEST_SUITE_P(Megatron, GoldenLayout, ::testing::ValuesIn(golden_rows));

TEST(AlignedPadding, CostsLittleOnRealModels) {
  for (const Gpt2& model : {gpt2_124m, gpt2_350m, gpt2_774m, gpt2_1558m, gpt2_6700m})
    for (const int ranks : {1, 3, 8, 12, 97, 128, 949, 1000, 1024, 3072, 4096}) {
      const Plan plan(gpt2_table(model), megatron_options(ranks, Padding::aligned));
      const std::int64_t padding = plan.flat_elements() - plan.parameter_elements();
      EXPECT_LE(padding * 10'000, plan.parameter_elements() * 14) << model.name << ", " << ranks;
    }
}

TEST(HighBandwidthPadding, CanCostHalfAModel) {
  const Plan plan(gpt2_table(gpt2_124m), megatron_options(949, Padding::megatron_high_bandwidth));
  EXPECT_EQ(plan.flat_elements() * 1000 / plan.parameter_elements(), 1498);
}

}  // namespace
}  // namespace trireme::layout
