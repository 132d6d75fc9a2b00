// SPDX-License-Identifier: Apache-2.0
#include "train/rank_spread.hpp"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace trireme::train {
namespace {

TEST(RankSpread, IsThatOfTheSortedValues) {
  const auto world = comm::make_mpi_world();
  const auto size = static_cast<std::size_t>(world->size());
  // Every rank draws everybody's values and brings its own.
  std::mt19937_64 random(7);
  constexpr std::size_t count = 200;
  std::vector<std::vector<std::int64_t>> all(size, std::vector<std::int64_t>(count));
  for (std::size_t i = 0; i < count; ++i)
    for (auto& values : all)
      values[i] = static_cast<std::int64_t>(random() % (std::uint64_t{1} << (i % 50)));
  const auto spreads = over_ranks(*world, all[static_cast<std::size_t>(world->rank())]);
  ASSERT_EQ(spreads.size(), count);
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<std::int64_t> sorted;
    for (const auto& values : all) sorted.push_back(values[i]);
    const auto first = std::ranges::max_element(sorted) - sorted.begin();
    std::ranges::sort(sorted);
    const std::int64_t median = sorted[(size - 1) / 2];
    EXPECT_EQ(spreads[i].least, sorted.front());
    EXPECT_EQ(spreads[i].most, sorted.back());
    EXPECT_EQ(spreads[i].rank_of_most, first);
    EXPECT_GE(spreads[i].median, median);
    EXPECT_LE(spreads[i].median, median + median / 128);
  }
}

TEST(RankSpread, OfNothingIsNothing) {
  const auto world = comm::make_mpi_world();
  EXPECT_TRUE(over_ranks(*world, {}).empty());
}

}  // namespace
}  // namespace trireme::train
