// SPDX-License-Identifier: Apache-2.0
#include "batches/batches.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace trireme::batches {
namespace {

TEST(Batches, EveryRankCountSeesTheSameGlobalBatchOnce) {
  constexpr std::int64_t first = 240;
  for (int ranks = 1; ranks <= 40; ++ranks)
    for (const std::int64_t sequences : {1, 7, 24, 35})
      for (const std::int64_t micro_sequences : {1, 2, 5}) {
        const Batches batches{sequences, micro_sequences, ranks};
        batches.validate();
        std::vector<int> seen(static_cast<std::size_t>(sequences), 0);
        std::int64_t next = first;
        for (int rank = 0; rank < ranks; ++rank) {
          EXPECT_EQ(batches.micro_steps(rank), batches.micro_steps());
          for (std::int64_t micro = 0; micro < batches.micro_steps(rank); ++micro) {
            const Batches::Micro one = batches.micro_batch(first, rank, micro);
            ASSERT_GE(one.first, first);
            ASSERT_LT(one.first, first + sequences);
            ASSERT_LE(one.count, micro_sequences);
            if (one.count > 0) {
              ASSERT_EQ(one.first, next) << "blocks are consecutive";
              next += one.count;
            }
          }
        }
        EXPECT_EQ(next, first + sequences) << ranks << " ranks";
        EXPECT_EQ(batches.share(0).count, batches.most_sequences());
        EXPECT_LE(batches.most_sequences() - batches.share(ranks - 1).count, 1);
      }
}

TEST(Batches, LocalStepsHaveEqualPartsOfTheBatchOneAfterAnother) {
  constexpr std::int64_t first = 100, sequences = 21;
  for (const std::int64_t updates : {1, 3, 7})
    for (int ranks = 1; ranks <= 3; ++ranks) {
      const Batches batches{sequences, 2, ranks, 0, updates};
      batches.validate();
      const std::int64_t each = batches.micro_steps() / updates;
      std::int64_t next = first;
      for (std::int64_t update = 0; update < updates; ++update) {
        for (int rank = 0; rank < ranks; ++rank)
          for (std::int64_t micro = update * each; micro < (update + 1) * each; ++micro)
            if (const auto [at, count] = batches.micro_batch(first, rank, micro); count > 0) {
              EXPECT_EQ(at, next);
              next += count;
            }
        EXPECT_EQ(next, first + (update + 1) * sequences / updates)
            << updates << " updates on " << ranks << " ranks";
      }
    }
}

TEST(Batches, RanksOfATreeTakeWholeSubtrees) {
  constexpr std::int64_t leaves = 32, of_a_leaf = 6;
  for (int ranks = 1; ranks <= leaves; ++ranks) {
    const Batches batches{leaves * of_a_leaf, 2, ranks, leaves};
    batches.validate();
    std::int64_t next = 0, most = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const Batches::Share own = batches.share(rank);
      EXPECT_EQ(own.begin, next);
      EXPECT_EQ(own.begin % own.count, 0) << "a subtree";
      EXPECT_EQ(batches.micro_steps(rank) * 2, own.count) << "no micro-step without samples";
      next += own.count;
      most = std::max(most, own.count);
    }
    EXPECT_EQ(next, batches.sequences);
    EXPECT_EQ(batches.most_sequences(), most) << ranks << " ranks";
  }
}

TEST(Batches, SayHowLongRanksIdle) {
  EXPECT_EQ(uneven_text({24, 2, 4}), "");
  EXPECT_EQ(uneven_text({20, 8, 4}), "") << "the last micro-batch is smaller on all ranks";
  EXPECT_EQ(
      uneven_text({10, 1, 4}),
      "ranks have between 2 and 3 of the 10 sequences, so some idle for 33.3 % of the compute "
      "time of a step. They have equally many of 8 or 12");
  EXPECT_EQ(uneven_text({12, 1, 2, 0, 3}), "");
  EXPECT_EQ(uneven_text({15, 1, 2, 0, 3}),
            "ranks have between 2 and 3 of the 5 sequences of a local step, so some idle for 33.3 "
            "% of the compute time of a step. They have equally many of 12 or 18");
  EXPECT_NE(uneven_text({3, 1, 4}).find("between 0 and 1"), std::string::npos);
  EXPECT_NE(uneven_text({8, 1, 3, 8}).find("if their number is a power of two"), std::string::npos);
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

TEST(Batches, RefusesLeavesThatDoNotDivide) {
  EXPECT_THROW((Batches{10, 1, 1, 4}.validate()), ContractError);
  EXPECT_THROW((Batches{8, 4, 1, 4}.validate()), ContractError);
  EXPECT_NO_THROW((Batches{12, 3, 3, 4}.validate()));
}

}  // namespace
}  // namespace trireme::batches
