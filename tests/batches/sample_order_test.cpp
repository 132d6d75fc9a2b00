// SPDX-License-Identifier: Apache-2.0
#include "batches/sample_order.hpp"

#include <numeric>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace trireme::batches {
namespace {

std::vector<std::int64_t> epoch_of(const SampleOrder& order, std::int64_t epoch) {
  std::vector<std::int64_t> samples;
  for (std::int64_t place = 0; place < order.size(); ++place)
    samples.push_back(order(epoch, place));
  return samples;
}

TEST(SampleOrder, IsABijectionForEverySize) {
  std::vector<std::int64_t> sizes(300);
  std::iota(sizes.begin(), sizes.end(), 1);
  for (std::int64_t size : {511, 512, 513, 1000, 4095, 4096, 4097, 65537, 100003})
    sizes.push_back(size);
  for (const std::int64_t size : sizes)
    for (const std::int64_t epoch : {0, 1}) {
      const SampleOrder order(1337, size);
      std::vector<bool> seen(static_cast<std::size_t>(size), false);
      for (const std::int64_t sample : epoch_of(order, epoch)) {
        ASSERT_TRUE(sample >= 0 && sample < size) << size;
        ASSERT_FALSE(seen[static_cast<std::size_t>(sample)]) << size;
        seen[static_cast<std::size_t>(sample)] = true;
      }
    }
}

TEST(SampleOrder, DiffersByEpochAndSeed) {
  const SampleOrder a(1, 1000), b(2, 1000);
  EXPECT_NE(epoch_of(a, 0), epoch_of(a, 1));
  EXPECT_NE(epoch_of(a, 0), epoch_of(b, 0));
  EXPECT_EQ(epoch_of(a, 3), epoch_of(SampleOrder(1, 1000), 3));
}

// Resumed runs rely on these numbers. They are not from a reference; we recorded them.
TEST(SampleOrder, KeepsItsNumbers) {
  const SampleOrder order(1337, 10);
  EXPECT_EQ(epoch_of(order, 0), (std::vector<std::int64_t>{5, 4, 0, 6, 9, 8, 3, 2, 7, 1}));
}

// Neighbours must be separated: among n places, about one keeps distance 1 to the next, and the
// mean distance of a random permutation is n / 3.
TEST(SampleOrder, ScattersNeighbours) {
  const std::int64_t size = 10007;
  const auto samples = epoch_of(SampleOrder(7, size), 0);
  double distance = 0;
  int adjacent = 0, fixed = 0;
  for (std::size_t i = 0; i + 1 < samples.size(); ++i) {
    const auto gap = std::abs(samples[i + 1] - samples[i]);
    distance += static_cast<double>(gap);
    adjacent += gap == 1 ? 1 : 0;
    fixed += samples[i] == static_cast<std::int64_t>(i) ? 1 : 0;
  }
  EXPECT_NEAR(distance / static_cast<double>(size), static_cast<double>(size) / 3, 150);
  EXPECT_LT(adjacent, 12);
  EXPECT_LT(fixed, 8);
}

TEST(SampleOrder, WorksBeyondStoredPermutations) {
  const SampleOrder order(3, (std::int64_t{1} << 40) + 1);
  std::set<std::int64_t> seen;
  for (std::int64_t place = 0; place < 1000; ++place) seen.insert(order(5, place));
  EXPECT_EQ(seen.size(), 1000U);
  EXPECT_GT(*seen.rbegin(), std::int64_t{1} << 39);
}

TEST(SampleOrder, RefusesPlacesOutside) {
  const SampleOrder order(3, 10);
  EXPECT_THROW((void)order(0, 10), ContractError);
  EXPECT_THROW((void)order(-1, 0), ContractError);
  EXPECT_THROW(SampleOrder(3, 0), ContractError);
}

}  // namespace
}  // namespace trireme::batches
