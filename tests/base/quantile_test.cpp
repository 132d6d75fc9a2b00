// SPDX-License-Identifier: Apache-2.0
#include "base/quantile.hpp"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(QuantileTest, TheMiddleOfAnOddCountAndBetweenTwoOfAnEvenOne) {
  EXPECT_EQ(median({5}), 5);
  EXPECT_EQ(median({9, 1, 4}), 4);
  EXPECT_EQ(median({9, 1, 4, 5}), 4.5);
}

TEST(QuantileTest, InterpolatesBetweenNeighbours) {
  const std::vector<double> values{40, 10, 20, 30, 0};
  EXPECT_EQ(quantile(values, 0), 0);
  EXPECT_EQ(quantile(values, 0.25), 10);
  EXPECT_EQ(quantile(values, 0.625), 25);
  EXPECT_EQ(quantile(values, 1), 40);
  EXPECT_EQ(quantile({2, 8}, 0.25), 3.5);
}

TEST(QuantileTest, RefusesNothingAndPartsOutsideTheWhole) {
  EXPECT_THROW((void)median({}), ContractError);
  EXPECT_THROW((void)quantile({1, 2}, -0.1), ContractError);
  EXPECT_THROW((void)quantile({1, 2}, 1.1), ContractError);
}

}  // namespace
}  // namespace trireme
