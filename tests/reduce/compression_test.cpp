// SPDX-License-Identifier: Apache-2.0
// Gradients that are sent as int8 and fp8, on ranks that are threads.
#include "reduce/compression.hpp"

#include <cmath>
#include <limits>
#include <span>

#include <gtest/gtest.h>

#include "reduce/coded_steps.hpp"
#include "reduce/one_store.hpp"
#include "reduce/thread_ranks.hpp"

namespace trireme::reduce {
namespace {

using trireme::testing::OneStore;
using trireme::testing::run_ranks;
using trireme::testing::Setting;
using trireme::testing::table;
using trireme::testing::ThreadRank;
using trireme::testing::train_in_codes;

constexpr GradientDType coded[] = {GradientDType::int8, GradientDType::fp8, GradientDType::top4};

class CompressionAtRanks : public ::testing::TestWithParam<int> {};

TEST_P(CompressionAtRanks, TrainsAsAPlainLoopWithEverySwitch) {
  const int ranks = GetParam(), steps = 3;
  for (const GradientDType wire : coded)
    for (const layout::Shard shard : {layout::Shard::none, layout::Shard::optimizer}) {
      const auto expected = train_in_codes({.shard = shard, .gradient_dtype = wire}, steps, ranks);
      for (Setting setting : trireme::testing::settings_of_every_switch()) {
        const bool overlaps = setting.overlap_gradients && setting.overlap_parameters;
        if (setting.shard != shard || (setting.bucket_elements != 350 && !overlaps))
          continue;
        setting.gradient_dtype = wire;
        run_ranks(ranks, [&](ThreadRank& rank) {
          EXPECT_EQ(trireme::testing::train(setting, steps, rank.communicator, *rank.device,
                                            *rank.compute, &rank.world),
                    expected)
              << word(wire) << ", " << setting.text();
        });
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Ranks, CompressionAtRanks, ::testing::Values(2, 3, 4));

TEST(Compression, OfOneRankIsNone) {
  const Setting coded_setting{.gradient_dtype = GradientDType::int8}, plain;
  run_ranks(1, [&](ThreadRank& rank) {
    const auto train = [&](const Setting& setting) {
      return trireme::testing::train(setting, 4, rank.communicator, *rank.device, *rank.compute,
                                     &rank.world);
    };
    EXPECT_EQ(train(coded_setting), train(plain));
  });
}

ParallelConfig config_of(GradientDType wire, layout::Shard shard, bool feedback = true) {
  ParallelConfig config;
  config.gradient_dtype = wire;
  config.shard = shard;
  config.error_feedback = feedback;
  return config;
}

/// Gradient descent on the sum over ranks of (x - a_rank)^2 / 2, whose optimum is the mean of all
/// a. The terms are not zero there, so neither is the part that codes cut off. Returns the largest
/// distance of the mean of the last half of the steps to the optimum. If one element in 64 is sent,
/// an element waits up to 64 steps, so the rate is small where few are sent.
double distance_to_optimum(GradientDType wire, layout::Shard shard, bool feedback) {
  constexpr int ranks = 2;
  const bool sends_all = wire == GradientDType::int8 || wire == GradientDType::fp8;
  const int steps = sends_all ? 120 : 1500;
  const float rate = sends_all ? 0.2F : 0.01F;
  constexpr std::size_t elements = 64;
  const auto wanted = [&](int rank, std::size_t i) {
    const auto large = static_cast<float>((rank * 7 + static_cast<int>(i) * 5) % 11);
    return i % 2 == 0 || !sends_all ? large : large / 1000;
  };
  double distance = 0;
  run_ranks(ranks, [&](ThreadRank& rank) {
    OneStore store(rank, config_of(wire, shard, feedback),
                   {{"x", {static_cast<std::int64_t>(elements)}}});
    std::vector<float> x(elements), gradient(elements);
    std::vector<double> late(elements);
    for (int step = 0; step < steps; ++step) {
      for (std::size_t i = 0; i < elements; ++i) gradient[i] = x[i] - wanted(rank.world.rank(), i);
      // With shards only rank 0 owns elements; it sends the sum to the others.
      std::vector<double> sum(elements);
      const auto own = store.sum(gradient);
      if (shard == layout::Shard::none || rank.world.rank() == 0)
        std::ranges::copy(own.first(elements), sum.begin());
      if (shard != layout::Shard::none) {
        const auto all = rank.world.gather_all(std::span<const double>(sum));
        std::copy_n(all.begin(), elements, sum.begin());
      }
      for (std::size_t i = 0; i < elements; ++i) {
        x[i] -= rate * static_cast<float>(sum[i]);
        if (step >= steps / 2)
          late[i] += static_cast<double>(x[i]) * 2 / steps;
      }
    }
    double worst = 0;
    for (std::size_t i = 0; i < elements; ++i) {
      double mean = 0;
      for (int r = 0; r < ranks; ++r) mean += static_cast<double>(wanted(r, i)) / ranks;
      worst = std::max(worst, std::abs(late[i] - mean));
    }
    if (rank.world.rank() == 0)
      distance = worst;
    rank.world.barrier();
  });
  return distance;
}

TEST(Compression, ReachesAnOptimumWithErrorFeedbackAndOtherwiseStalls) {
  for (const GradientDType wire : {GradientDType::top4, GradientDType::top1})
    for (const layout::Shard shard : {layout::Shard::none, layout::Shard::optimizer})
      EXPECT_LT(distance_to_optimum(wire, shard, true),
                distance_to_optimum(wire, shard, false) / 20)
          << word(wire) << " " << word(shard);
  for (const GradientDType wire : {GradientDType::int8, GradientDType::fp8}) {
    for (const layout::Shard shard : {layout::Shard::none, layout::Shard::optimizer})
      EXPECT_LT(distance_to_optimum(wire, shard, true), 2e-3) << word(wire) << " " << word(shard);
    EXPECT_GT(distance_to_optimum(wire, layout::Shard::none, false), 8e-3) << word(wire);
  }
}

TEST(Compression, RecoversFromAGradientThatIsNotFinite) {
  run_ranks(2, [](ThreadRank& rank) {
    OneStore store(rank, config_of(GradientDType::int8, layout::Shard::none), {{"x", {128}}});
    std::vector<float> gradient(128, 3.0F);
    if (rank.world.rank() == 1)
      gradient[70] = std::numeric_limits<float>::infinity();
    EXPECT_TRUE(std::isnan(store.sum(gradient)[70]));
    gradient[70] = 3.0F;
    for (const float sum : store.sum(gradient).first(128)) EXPECT_EQ(sum, 6.0F);
  });
}

TEST(Compression, SendsAndHoldsWhatThePlanCounts) {
  for (const layout::Shard shard : {layout::Shard::none, layout::Shard::optimizer})
    for (const bool feedback : {true, false})
      run_ranks(3, [&](ThreadRank& rank) {
        const ParallelConfig config = config_of(GradientDType::fp8, shard, feedback);
        OneStore store(rank, config, table());
        std::int64_t sent = 0, carried = 0;
        for (std::size_t b = 0; b < store.plan().buckets().size(); ++b) {
          store.store.reduce(static_cast<BucketIndex>(b), true, *rank.compute);
          sent += compressed_bytes(config, store.plan(), store.plan().buckets()[b]);
        }
        EXPECT_EQ(rank.communicator.sent_bytes(), sent);
        for (const Carried& one : store.store.carried())
          carried += static_cast<std::int64_t>(one.values.bytes());
        EXPECT_EQ(carried, compression_bytes(config, store.plan()).carried);
        EXPECT_EQ(carried > 0, feedback);
        rank.world.barrier();
      });
}

}  // namespace
}  // namespace trireme::reduce
