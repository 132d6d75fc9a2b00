// SPDX-License-Identifier: Apache-2.0
// How much tune runs within its time, for steps from a millisecond to a minute.
#include "tune/budget.hpp"

#include <algorithm>

#include <gtest/gtest.h>

namespace trireme::tune {
namespace {

/// Computed as in seconds_of_a_step().
double seconds_of(const TuneBudget& budget, const OwnStep& own, int settings) {
  const double made = static_cast<double>(std::min(own.micro_steps, budget.timed.most_micro_steps));
  const double step_s = own.seconds * made / static_cast<double>(own.micro_steps);
  return step_s * (budget.timed.warmups + budget.timed.steps) * budget.rounds * settings;
}

TEST(TuneBudget, ShortStepsFillTheTime) {
  for (const double step_s : {0.01, 0.05, 0.2}) {
    const OwnStep own{step_s, 8};
    const TuneBudget runs = budget_of(48, own, 6, 4), again = budget_of(42, own, 2, 8);
    EXPECT_EQ(runs.rounds, 4);
    EXPECT_EQ(again.rounds, 8);
    EXPECT_GT(runs.timed.most_micro_steps, 8) << "whole steps";
    EXPECT_LE(seconds_of(runs, own, 6), 48);
    EXPECT_LE(seconds_of(again, own, 2), 42);
  }
  EXPECT_EQ(budget_of(48, {0.001, 8}, 6, 4).timed.steps, 15);
  EXPECT_EQ(budget_of(48, {0.3, 8}, 6, 4).timed.steps, 4);
}

TEST(TuneBudget, LongStepsAreCutBeforeRounds) {
  const OwnStep own{2, 30};  // a cut one takes 0.2 s
  const TuneBudget runs = budget_of(24, own, 6, 4), again = budget_of(42, own, 2, 8);
  EXPECT_EQ(runs.timed.most_micro_steps, 3);
  EXPECT_EQ(runs.timed.steps, 1);
  EXPECT_EQ(runs.rounds, 4);
  EXPECT_EQ(again.rounds, 8);
  EXPECT_LE(seconds_of(runs, own, 6), 24);
  EXPECT_LE(seconds_of(again, own, 2), 42);
}

TEST(TuneBudget, FewerRoundsOfLongSteps) {
  const OwnStep own{1.3, 1};
  const TuneBudget runs = budget_of(48, own, 6, 4), again = budget_of(38, own, 2, 8);
  EXPECT_EQ(runs.rounds, 3);
  EXPECT_EQ(again.rounds, 7);
  EXPECT_LE(seconds_of(runs, own, 6), 48);
  EXPECT_LE(seconds_of(again, own, 2), 38);
}

TEST(TuneBudget, ASearchHasWholeStepsWhereTheyFit) {
  EXPECT_EQ(steps_within(15, {0.02, 4}, 18).steps, 15);
  EXPECT_GT(steps_within(15, {0.2, 4}, 18).most_micro_steps, 4);
  EXPECT_EQ(steps_within(15, {2, 4}, 18).steps, shortest_steps.steps);
  EXPECT_EQ(sessions_within(30, {2, 30}), 75U) << "a tenth of a step, twice";
  EXPECT_EQ(sessions_within(30, {2, 2}), 7U);
}

TEST(TuneBudget, KeepsHalfOfTheRounds) {
  for (const double step_s : {10.0, 100.0}) {
    EXPECT_EQ(budget_of(48, {step_s, 3}, 6, 4).rounds, 2);
    EXPECT_EQ(budget_of(42, {step_s, 3}, 2, 8).rounds, 4);
  }
}

}  // namespace
}  // namespace trireme::tune
