// SPDX-License-Identifier: Apache-2.0
#include "train/slow_ranks.hpp"

#include <cmath>
#include <functional>
#include <random>

#include <gtest/gtest.h>

namespace trireme::train {
namespace {

using Random = std::mt19937_64;

double uniform(Random& random) {  // the same on every standard library, unlike its distributions
  return (static_cast<double>(random() >> 11U) + 0.5) / 9007199254740992.0;
}
double normal(Random& random) {
  return std::sqrt(-2 * std::log(uniform(random))) * std::cos(2 * M_PI * uniform(random));
}
double lognormal(Random& random) {
  return std::exp(0.1 * normal(random));
}
/// Student's t with 2 degrees of freedom around 1, whose variance is infinite; never negative.
double student(Random& random) {
  const double chi = -2 * std::log(uniform(random));
  return std::max(0.05, 1 + 0.1 * normal(random) / std::sqrt(chi / 2));
}
/// One step in ten takes longer, without a bound: interrupts, other jobs, page faults.
double pareto(Random& random) {
  return uniform(random) < 0.1 ? std::pow(uniform(random), -0.7) : 1 + 0.02 * normal(random);
}

TEST(SlowRankRule, GivesNoFalseAlarmIn10000NoisySteps) {
  Random random(50);
  const std::function<double(Random&)> noises[] = {lognormal, student, pareto};
  for (const int ranks : {2, 3, 4, 8, 64})
    for (const auto& noise : noises) {
      SlowRankRule rule(ranks);
      std::vector<double> seconds(static_cast<std::size_t>(ranks));
      int windows = 0;
      for (int step = 0; step < 10'000; ++step) {
        const double all = noise(random);  // noise that slows all ranks makes none of them slow
        for (double& one : seconds) one = 0.3 * all * noise(random);
        const auto changes = rule.add(seconds);
        windows += changes.window_ended ? 1 : 0;
        ASSERT_TRUE(changes.slow.empty())
            << ranks << " ranks, noise " << &noise - noises << ", step " << step << ", factor "
            << rule.factor(changes.slow.front());
      }
      EXPECT_GT(windows, 400);
    }
}

/// The steps at which `rule` reports rank `slow`, or its recovery, when that takes `factor` times
/// as long in steps [from, to).
std::pair<int, int> reports(int ranks, int slow, double factor, int from, int to, Random& random) {
  SlowRankRule rule(ranks);
  std::vector<double> seconds(static_cast<std::size_t>(ranks));
  std::pair<int, int> found{-1, -1};
  for (int step = 0; step < to + 100; ++step) {
    for (double& one : seconds) one = 0.3 * pareto(random);
    if (step >= from && step < to)
      seconds[static_cast<std::size_t>(slow)] *= factor;
    const auto changes = rule.add(seconds);
    if (!changes.slow.empty()) {
      EXPECT_EQ(changes.slow, std::vector<int>{slow});
      EXPECT_NEAR(rule.factor(slow), factor, 0.05 * factor);
      found.first = step;
    }
    if (!changes.recovered.empty())
      found.second = step;
  }
  return found;
}

TEST(SlowRankRule, ReportsASlowRankAndItsRecoveryWithinThreeWindows) {
  Random random(51);
  for (const int ranks : {2, 3, 4, 5, 64})
    for (const double factor : {1.3, 2.0, 10.0}) {
      const auto [begin, end] = reports(ranks, ranks - 1, factor, 105, 405, random);
      EXPECT_GE(begin, 105) << ranks << " ranks, " << factor;
      EXPECT_LE(begin, 105 + 30) << ranks << " ranks, " << factor;
      EXPECT_GE(end, 405) << ranks << " ranks, " << factor;
      EXPECT_LE(end, 405 + 30) << ranks << " ranks, " << factor;
    }
}

TEST(SlowRankRule, AddsShortStepsUp) {
  SlowRankRule rule(2);
  for (int step = 0; step < 10'000; ++step) {
    const auto changes = rule.add(std::vector{1e-4, 2e-4});
    ASSERT_TRUE(changes.slow.empty()) << step;  // 1.5 s in all: less than a window
  }
}

TEST(SlowRankRule, LeavesOutRanksWithoutWork) {
  SlowRankRule rule(3);
  for (int step = 0; step < 100; ++step) {
    const auto changes = rule.add(std::vector{1.0, 0.0, 1.0});
    ASSERT_TRUE(changes.slow.empty() && changes.recovered.empty()) << step;
  }
}

}  // namespace
}  // namespace trireme::train
