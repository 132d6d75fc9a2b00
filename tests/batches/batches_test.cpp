// SPDX-License-Identifier: Apache-2.0
#include "batches/batches.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace trireme::batches {
namespace {

TEST(Batches, EveryRankCountSeesTheSameGlobalBatchOnce) {
  constexpr std::int64_t sequences = 24;
  constexpr std::int64_t first = 240;
  for (const int ranks : {1, 2, 3, 4, 6, 12}) {
    const Batches batches{sequences, 2, ranks};
    batches.validate();
    std::vector<int> seen(sequences, 0);
    for (int rank = 0; rank < ranks; ++rank)
      for (std::int64_t micro = 0; micro < batches.micro_steps(); ++micro)
        for (std::int64_t row = 0; row < 2; ++row)
          ++seen[static_cast<std::size_t>(batches.first_sample(first, rank, micro) + row - first)];
    for (const int times : seen) EXPECT_EQ(times, 1) << ranks << " ranks";
  }
}

TEST(BatchSizes, AreAFunctionOfTheStep) {
  const BatchSizes sizes(12, {{5, 24}, {6, 8}});
  std::vector<std::int64_t> all;
  for (std::int64_t step = 1; step <= 8; ++step) all.push_back(sizes.at(step));
  EXPECT_EQ(all, (std::vector<std::int64_t>{12, 12, 12, 12, 24, 8, 8, 8}));
  EXPECT_EQ(sizes.smallest(), 8);
  EXPECT_EQ(sizes.largest(), 24);
  EXPECT_TRUE(sizes.changes());
  EXPECT_FALSE(BatchSizes(12).changes());
}

TEST(BatchSizes, AddUp) {
  for (const BatchSizes& sizes :
       {BatchSizes(3), BatchSizes(3, {{2, 5}}), BatchSizes(12, {{5, 24}, {6, 8}, {11, 1}})}) {
    std::int64_t sum = 0;
    EXPECT_EQ(sizes.until(0), 0);
    for (std::int64_t step = 1; step <= 20; ++step) {
      sum += sizes.at(step);
      EXPECT_EQ(sizes.until(step), sum) << step;
    }
  }
}

TEST(BatchSizes, RefusesStepsThatDoNotAscend) {
  EXPECT_THROW(BatchSizes(4, {{1, 8}}), ContractError);
  EXPECT_THROW(BatchSizes(4, {{3, 8}, {3, 16}}), ContractError);
  EXPECT_THROW(BatchSizes(4, {{3, 0}}), ContractError);
  EXPECT_THROW(static_cast<void>(BatchSizes(4).at(0)), ContractError);
}

TEST(Batches, RefusesABatchThatDoesNotDivide) {
  EXPECT_THROW((Batches{10, 2, 3}.validate()), ContractError);
  EXPECT_THROW((Batches{10, 4, 1}.validate()), ContractError);
  EXPECT_NO_THROW((Batches{12, 2, 3}.validate()));
}

}  // namespace
}  // namespace trireme::batches
