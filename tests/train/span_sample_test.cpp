// SPDX-License-Identifier: Apache-2.0
#include "train/span_sample.hpp"

#include <algorithm>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::train {
namespace {

using ::testing::ElementsAre;

std::vector<std::int64_t> ranks_of(const SpanSample& sample) {
  std::vector<std::int64_t> kept;
  for (std::int64_t rank = 0; rank < sample.all_ranks; ++rank)
    if (sample.has_rank(rank))
      kept.push_back(rank);
  return kept;
}

TEST(SpanSample, KeepsAsManyRanksAsAskedForSpreadEvenlyWithTheFirst) {
  for (std::int64_t all = 1; all <= 70; ++all)
    for (std::int64_t asked = 1; asked <= 70; ++asked) {
      const auto kept = ranks_of(sample_of({.span_ranks = asked}, all, 10, 10));
      ASSERT_EQ(static_cast<std::int64_t>(kept.size()), std::min(all, asked))
          << all << " " << asked;
      ASSERT_EQ(kept[0], 0);
      for (std::size_t i = 1; i < kept.size(); ++i) {
        ASSERT_GE(kept[i] - kept[i - 1], all / std::min(all, asked));
        ASSERT_LE(kept[i] - kept[i - 1], all / std::min(all, asked) + 1);
      }
    }
  EXPECT_THAT(ranks_of(sample_of({.span_ranks = 3}, 12, 10, 10)), ElementsAre(0, 4, 8));
}

TEST(SpanSample, KeepsEverySpanOfASmallRun) {
  const SpanSample sample = sample_of({}, 2, 450, spans_of_a_step({}, 6, 2, false));
  EXPECT_EQ(sample.every_steps, 1);
  EXPECT_EQ(sample.bytes, 450 * 2 * 32 * spans_of_a_step({}, 6, 2, false));
  EXPECT_EQ(sample.text(), "whole spans of 2 of 2 ranks, every step, at most 900 KiB");
}

TEST(SpanSample, CountsEveryCollective) {
  reduce::ParallelConfig parallel;
  bool matrices = false;
  const auto of_buckets = [&] {
    return (spans_of_a_step(parallel, 6, 3, matrices) - spans_of_a_step(parallel, 6, 2, matrices));
  };
  EXPECT_EQ(of_buckets(), 3 + 3) << "a reduction and a gather";
  parallel.shard = layout::Shard::none;
  EXPECT_EQ(of_buckets(), 3);
  parallel.shard = layout::Shard::gradients;
  EXPECT_EQ(of_buckets(), 6 * 3 + 3);
  parallel.shard = layout::Shard::parameters;
  EXPECT_EQ(of_buckets(), 6 * 3 + 12 * 3);
  parallel.reshard_after_forward = false;
  EXPECT_EQ(of_buckets(), 6 * 3 + 3);
  matrices = true;
  EXPECT_EQ(of_buckets(), 6 * 3 + 3 + 5) << "products, two transfers and the waits for them";
  parallel.shard = layout::Shard::none;
  EXPECT_EQ(of_buckets(), 3 + 1) << "products";
}

TEST(SpanSample, HoldsItsBoundForAnyNumberOfRanksAndSteps) {
  for (const std::int64_t ranks : {1, 8, 1024, 4096})
    for (const std::int64_t steps : {1, 1000, 1'000'000, 1'000'000'000}) {
      const std::int64_t spans = spans_of_a_step({}, 16, 98, true);
      const SpanSample sample = sample_of({}, ranks, steps, spans);
      EXPECT_LE(sample.bytes, std::int64_t{256} << 20U) << ranks << " ranks, " << steps << " steps";
      std::int64_t kept = 0;
      for (std::int64_t step = 1; step <= std::min<std::int64_t>(steps, 100'000); ++step)
        kept += sample.has_step(step) ? 1 : 0;
      EXPECT_LE(kept * spans * 32 * std::min<std::int64_t>(ranks, 8), sample.bytes);
      EXPECT_TRUE(sample.has_step(0));
      EXPECT_TRUE(sample.has_step(1));
    }
}

}  // namespace
}  // namespace trireme::train
