// SPDX-License-Identifier: Apache-2.0
#include "train/batches.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace trireme::train {
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

TEST(Batches, RefusesABatchThatDoesNotDivide) {
  EXPECT_THROW((Batches{10, 2, 3}.validate()), ContractError);
  EXPECT_THROW((Batches{10, 4, 1}.validate()), ContractError);
  EXPECT_NO_THROW((Batches{12, 2, 3}.validate()));
}

}  // namespace
}  // namespace trireme::train
