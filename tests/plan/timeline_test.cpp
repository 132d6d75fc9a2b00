// SPDX-License-Identifier: Apache-2.0
#include "plan/timeline.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace trireme::plan {
namespace {

TEST(Timeline, OverlapsWhatTakesNothingFromCompute) {
  Timeline line({0, 1});
  line.compute(1);
  const auto first = line.enqueue(3), second = line.enqueue(1);
  line.compute(2);
  EXPECT_DOUBLE_EQ(line.now(), 3);
  line.wait(first);
  EXPECT_DOUBLE_EQ(line.now(), 4);
  line.wait(second);
  EXPECT_DOUBLE_EQ(line.now(), 5);
  line.wait(first);
  EXPECT_DOUBLE_EQ(line.now(), 5);
  EXPECT_DOUBLE_EQ(line.exposed(), 2);
}

TEST(Timeline, StartsNothingBeforeItIsEnqueued) {
  Timeline line({0, 1});
  line.wait(line.enqueue(1));
  line.compute(10);
  line.wait(line.enqueue(1));
  EXPECT_DOUBLE_EQ(line.now(), 12);
}

/// Compute at half pace, the collective three times as long: 6 s, in which compute does 3 s.
TEST(Timeline, SharesBetweenComputeAndCollective) {
  Timeline line({0.5, 3});
  const auto collective = line.enqueue(2);
  line.compute(4);
  EXPECT_DOUBLE_EQ(line.now(), 6 + 1);
  EXPECT_DOUBLE_EQ(line.shared(), 6);
  line.wait(collective);
  EXPECT_DOUBLE_EQ(line.exposed(), 0);
}

/// Compute ends first: 1 s of work takes 2 s, in which 2/3 s of the collective are done.
TEST(Timeline, GivesACollectiveItsPaceBackWhenComputeWaits) {
  Timeline line({0.5, 3});
  const auto collective = line.enqueue(2);
  line.compute(1);
  EXPECT_DOUBLE_EQ(line.now(), 2);
  line.wait(collective);
  EXPECT_DOUBLE_EQ(line.now(), 2 + 2 - 2.0 / 3);
}

TEST(Timeline, GainsNothingWhereACollectiveStopsCompute) {
  Timeline line({1, 1});
  const auto collective = line.enqueue(2);
  line.compute(5);
  line.wait(collective);
  EXPECT_DOUBLE_EQ(line.now(), 7);
}

TEST(Timeline, LetsCollectivesGoOnWhileComputeIsBlocked) {
  Timeline line({0.5, 3});
  line.enqueue(1);
  const auto last = line.enqueue(4);
  line.block(3);
  line.wait(last);
  EXPECT_DOUBLE_EQ(line.now(), 5);
  EXPECT_DOUBLE_EQ(line.exposed(), 5);
}

TEST(Timeline, RefusesAnUnknownCollective) {
  Timeline line({0, 1});
  EXPECT_THROW(line.wait(0), ContractError);
}

}  // namespace
}  // namespace trireme::plan
