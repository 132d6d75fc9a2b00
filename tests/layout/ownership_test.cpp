// SPDX-License-Identifier: Apache-2.0
#include "layout/ownership.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "layout/models.hpp"

namespace trireme::layout {
namespace {

using namespace testing;

TEST(Ownership, WithoutCostsHasNoOwners) {
  const Plan plan(table_of({100, 200, 300}), {3, 150, Padding::aligned});
  const Ownership elements(plan);
  for (int p = 0; p < 3; ++p) {
    EXPECT_EQ(elements.owner(ParameterIndex{p}), -1);
    EXPECT_TRUE(elements.pieces(plan, ParameterIndex{p}).empty());
  }
}

TEST(Ownership, AssignsTheMostExpensiveFirstToTheSmallestLoad) {
  const Plan plan(table_of({10, 20, 30, 40, 50}), {2, 1000, Padding::aligned});
  // Cost 8 to rank 0; 5 and 4 to rank 1; then 1 to rank 0 (8 < 9).
  const std::vector<double> cost = {4, 0, 8, 5, 1};
  const Ownership whole(plan, cost);
  EXPECT_EQ(whole.owner(ParameterIndex{0}), 1);
  EXPECT_EQ(whole.owner(ParameterIndex{1}), -1);
  EXPECT_EQ(whole.owner(ParameterIndex{2}), 0);
  EXPECT_EQ(whole.owner(ParameterIndex{3}), 1);
  EXPECT_EQ(whole.owner(ParameterIndex{4}), 0);
  EXPECT_EQ(whole.load(0), 9);
  EXPECT_EQ(whole.load(1), 9);
}

TEST(Ownership, OfAModelCoversEveryMatrixOnceAndIsBalanced) {
  const auto table = gpt2_table(gpt2_124m);
  std::vector<double> cost;
  double largest = 0, all = 0;
  for (const Parameter& parameter : table) {
    const bool hidden = parameter.shape.size() == 2 && parameter.name.find("h.") == 0;
    cost.push_back(hidden ? static_cast<double>(parameter.elements()) : 0);
    largest = std::max(largest, cost.back());
    all += cost.back();
  }
  ASSERT_GT(all, 0);
  for (const int ranks : {1, 2, 3, 8, 64}) {
    const Plan plan(table, {ranks, 40'000'000, Padding::aligned});
    const Ownership whole(plan, cost);
    std::int64_t moved = 0;
    for (std::size_t p = 0; p < table.size(); ++p) {
      const auto parameter = static_cast<ParameterIndex>(p);
      std::int64_t next = 0;
      for (const MatrixPiece& one : whole.pieces(plan, parameter)) {
        EXPECT_EQ(one.piece.parameter_begin, next);  // in order, without gaps
        next += one.piece.elements;
        moved += one.rank != one.owner ? one.piece.elements : 0;
      }
      EXPECT_EQ(next, cost[p] > 0 ? table[p].elements() : 0) << table[p].name;
    }
    EXPECT_EQ(moved == 0, ranks == 1);
    double sum = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_LE(whole.load(rank), all / ranks + largest);
      sum += whole.load(rank);
    }
    EXPECT_DOUBLE_EQ(sum, all);
  }
}

/// Buckets are updated from the last to the first: a tied embedding's comes before any matrix.
TEST(Ownership, FindsTheFirstUpdateThatNeedsAMatrix) {
  const auto with_matrices = [](std::vector<Parameter> table, std::vector<std::size_t> which) {
    for (const std::size_t p : which) {
      table[p].shape = {4, table[p].elements() / 4};
      table[p].matrices = {4};
    }
    return first_updated_with_matrices(Plan(table, {2, 64, Padding::aligned}));
  };
  const auto table = table_of({100, 200, 300, 400});  // registration order: bucket 3 to bucket 0
  EXPECT_EQ(with_matrices(table, {1, 2}), BucketIndex{2});
  EXPECT_EQ(with_matrices(table, {0}), BucketIndex{3});
  EXPECT_EQ(with_matrices(table, {3}), BucketIndex{0});
  EXPECT_EQ(with_matrices(table, {}), BucketIndex{3});
}

TEST(Ownership, RefusesCostsThatDoNotFit) {
  const Plan plan(table_of({10, 20}), {2, 1000, Padding::aligned});
  EXPECT_THROW(Ownership(plan, std::vector<double>{1}), ContractError);
  EXPECT_THROW(Ownership(plan, std::vector<double>{1, -1}), ContractError);
}

}  // namespace
}  // namespace trireme::layout
