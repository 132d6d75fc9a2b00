// SPDX-License-Identifier: Apache-2.0
// The result of a reduction that the optimizer reads, on ranks that are threads.
#include "reduce/gradient_store.hpp"

#include <algorithm>

#include <gtest/gtest.h>

#include "reduce/steps.hpp"
#include "reduce/thread_ranks.hpp"

namespace trireme::reduce {
namespace {

using trireme::testing::run_ranks;
using trireme::testing::table;
using trireme::testing::ThreadRank;

void set_all(View view, float value) {
  std::fill_n(view.as<float>(), view.elements, value);
}

/// How gradients are reduced. Rank r writes (r + 1) times the values of rank 0.
struct Rounds {
  layout::Shard shard = layout::Shard::optimizer;
  ReduceEvery every = ReduceEvery::step;
  GradientDType wire = GradientDType::fp32;
};

void expect_sums(const Rounds& rounds) {
  run_ranks(3, [&](ThreadRank& rank) {
    const layout::Plan plan(table(), {3, 350, layout::Padding::aligned});
    ParallelConfig config;
    config.shard = rounds.shard;
    config.reduce_every = rounds.every;
    config.gradient_dtype = rounds.wire;
    GradientStore store(plan, config, rank.communicator, *rank.device);
    const auto stream = rank.device->make_stream(device::StreamMode::inlined, "test");
    const auto terms = static_cast<float>(1 + 2 + 3);
    const int times = rounds.every == ReduceEvery::micro_step ? 3 : 1;
    for (int round = 0; round < times; ++round)
      for (std::size_t b = 0; b < plan.buckets().size(); ++b) {
        const auto bucket = static_cast<BucketIndex>(b);
        const float value = static_cast<float>(b + 1) * static_cast<float>(1 << round);
        set_all(store.bucket(bucket), value * static_cast<float>(rank.world.rank() + 1));
        store.reduce(bucket, round == 0, *stream);
      }
    for (std::size_t b = 0; b < plan.buckets().size(); ++b) {
      const auto bucket = static_cast<BucketIndex>(b);
      const View own = store.own(bucket);
      ASSERT_EQ(own.elements, config.sharded() ? plan.bucket(bucket).shard_elements
                                               : plan.bucket(bucket).elements);
      const float expected =
          static_cast<float>(b + 1) * terms * static_cast<float>((1 << times) - 1);
      for (std::int64_t i = 0; i < own.elements; ++i)
        ASSERT_EQ(own.as<float>()[i], expected) << "bucket " << b << ", element " << i;
    }
    rank.world.barrier();
  });
}

TEST(GradientStore, LeavesTheSumOverTheRanks) {
  for (const layout::Shard shard : {layout::Shard::none, layout::Shard::optimizer})
    for (const GradientDType wire : {GradientDType::fp32, GradientDType::bf16})
      expect_sums({.shard = shard, .wire = wire});
}

TEST(GradientStore, AddsTheSumsOfMicroSteps) {
  for (const auto& [shard, text] : EnumNames<layout::Shard>::table)
    for (const GradientDType wire : {GradientDType::fp32, GradientDType::bf16})
      expect_sums({.shard = shard, .every = ReduceEvery::micro_step, .wire = wire});
}

TEST(GradientStore, KeepsSumsOfMicroStepsApartFromWhatBackwardWrites) {
  run_ranks(1, [](ThreadRank& rank) {
    const layout::Plan plan(table(), {1, 350, layout::Padding::aligned});
    ParallelConfig config;
    config.reduce_every = ReduceEvery::micro_step;
    GradientStore store(plan, config, rank.communicator, *rank.device);
    const auto stream = rank.device->make_stream(device::StreamMode::inlined, "test");
    const BucketIndex first{0};
    set_all(store.bucket(first), 2);
    store.reduce(first, true, *stream);
    set_all(store.bucket(first), 0);
    EXPECT_EQ(store.own(first).as<float>()[0], 2.0F);
  });
}

}  // namespace
}  // namespace trireme::reduce
