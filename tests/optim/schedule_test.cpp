// SPDX-License-Identifier: Apache-2.0
#include "optim/schedule.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace trireme::optim {
namespace {

OptimizerConfig config_of(Schedule kind, std::int64_t warmup_steps, double final_fraction = 0.1) {
  OptimizerConfig config;
  config.learning_rate = 2.0;
  config.schedule = {kind, warmup_steps, final_fraction, 0.2};
  return config;
}

constexpr Schedule kinds[] = {Schedule::constant, Schedule::linear, Schedule::cosine,
                              Schedule::wsd};

TEST(Schedule, WarmsUpInAStraightLineToThePeak) {
  for (const Schedule kind : kinds) {
    const auto config = config_of(kind, 10);
    EXPECT_DOUBLE_EQ(learning_rate(config, 1, 100), 0.2);
    EXPECT_DOUBLE_EQ(learning_rate(config, 5, 100), 1.0);
    EXPECT_DOUBLE_EQ(learning_rate(config, 9, 100), 1.8);
    EXPECT_DOUBLE_EQ(learning_rate(config, 10, 100), 2.0);
  }
}

TEST(Schedule, StartsAtThePeakWithoutWarmUp) {
  for (const Schedule kind : kinds)
    EXPECT_DOUBLE_EQ(learning_rate(config_of(kind, 0), 1, 100), 2.0) << word(kind);
}

TEST(Schedule, SweepsByEqualFactors) {
  for (const Schedule kind : kinds) {
    auto config = config_of(kind, 10);
    config.schedule.sweep_from = 1e-4;
    EXPECT_DOUBLE_EQ(learning_rate(config, 1, 41), 2e-4);
    EXPECT_DOUBLE_EQ(learning_rate(config, 11, 41), 2e-3);
    EXPECT_DOUBLE_EQ(learning_rate(config, 31, 41), 0.2);
    EXPECT_DOUBLE_EQ(learning_rate(config, 41, 41), 2.0);
  }
}

TEST(Schedule, EndsAtTheFinalFractionOfThePeak) {
  for (const Schedule kind : {Schedule::linear, Schedule::cosine, Schedule::wsd}) {
    EXPECT_NEAR(learning_rate(config_of(kind, 10), 100, 100), 0.2, 1e-15) << word(kind);
    EXPECT_NEAR(learning_rate(config_of(kind, 10, 0.0), 100, 100), 0.0, 1e-15) << word(kind);
    EXPECT_NEAR(learning_rate(config_of(kind, 10), 5000, 100), 0.2, 1e-15) << word(kind);
  }
  EXPECT_DOUBLE_EQ(learning_rate(config_of(Schedule::constant, 10), 100, 100), 2.0);
}

TEST(Schedule, HasFallenByHalfInTheMiddle) {
  EXPECT_NEAR(learning_rate(config_of(Schedule::linear, 20), 60, 100), 1.1, 1e-15);
  EXPECT_NEAR(learning_rate(config_of(Schedule::cosine, 20), 60, 100), 1.1, 1e-15);
  // After a quarter of the decay the cosine is at 0.5 (1 + cos(pi/4)) of the range, above a
  // straight line.
  EXPECT_NEAR(learning_rate(config_of(Schedule::cosine, 20), 40, 100),
              2 * (0.1 + 0.9 * 0.5 * (1 + std::sqrt(0.5))), 1e-12);
}

TEST(Schedule, WsdKeepsThePeakAndThenFalls) {
  const auto config = config_of(Schedule::wsd, 10);
  EXPECT_DOUBLE_EQ(learning_rate(config, 80, 100), 2.0);
  EXPECT_NEAR(learning_rate(config, 81, 100), 2 * (1 - 0.9 / 20), 1e-15);
  EXPECT_NEAR(learning_rate(config, 90, 100), 1.1, 1e-15);
}

TEST(Schedule, WsdFallsFastFirstByOneMinusTheSquareRoot) {
  auto config = config_of(Schedule::wsd, 10);
  config.schedule.decay_shape = DecayShape::one_minus_sqrt;
  EXPECT_DOUBLE_EQ(learning_rate(config, 80, 100), 2.0);
  EXPECT_NEAR(learning_rate(config, 85, 100), 2 * (0.1 + 0.9 * (1 - 0.5)), 1e-15);
  EXPECT_NEAR(learning_rate(config, 100, 100), 0.2, 1e-15);
}

TEST(Schedule, FindsWhereTheDecayBegins) {
  EXPECT_EQ(last_peak_step(config_of(Schedule::constant, 10).schedule, 100), 100);
  EXPECT_EQ(last_peak_step(config_of(Schedule::linear, 0).schedule, 100), 1);
  EXPECT_EQ(last_peak_step(config_of(Schedule::cosine, 10).schedule, 100), 10);
  EXPECT_EQ(last_peak_step(config_of(Schedule::wsd, 10).schedule, 100), 80);
  EXPECT_EQ(last_peak_step(config_of(Schedule::wsd, 90).schedule, 100), 90);
  EXPECT_EQ(last_peak_step(config_of(Schedule::wsd, 90).schedule, 50), 50);
  auto config = config_of(Schedule::wsd, 10);
  config.schedule.decay_fraction = 0.29;  // times 100 is slightly below 29 in binary
  EXPECT_EQ(last_peak_step(config.schedule, 100), 71);
  config.schedule.decay_fraction = 0.289;
  EXPECT_EQ(last_peak_step(config.schedule, 100), 72);
}

TEST(Schedule, StaysFiniteAndInsideItsBoundsAtEveryEdge) {
  for (const Schedule kind : kinds)
    for (const std::int64_t warmup : {0, 1, 2, 7, 50})
      for (const std::int64_t total : {1, 2, 3, 7, 8})
        for (const double decay : {0.0, 0.2, 1.0})
          for (std::int64_t step = 1; step <= total + 2; ++step) {
            auto config = config_of(kind, warmup);
            config.schedule.decay_fraction = decay;
            const double rate = learning_rate(config, step, total);
            ASSERT_TRUE(std::isfinite(rate));
            ASSERT_GT(rate, 0.0);
            ASSERT_LE(rate, 2.0);
          }
}

TEST(Schedule, StaysWhatItWasAtItsEnd) {
  for (const Schedule kind : kinds)
    for (const std::int64_t warmup : {0, 5, 6})
      EXPECT_EQ(learning_rate(config_of(kind, warmup), 6, 6),
                learning_rate(config_of(kind, warmup), 9, 6))
          << word(kind) << " after " << warmup;
}

TEST(Schedule, NeverRisesAfterThePeak) {
  for (const Schedule kind : {Schedule::linear, Schedule::cosine, Schedule::wsd}) {
    const auto config = config_of(kind, 5);
    for (std::int64_t step = 5; step < 60; ++step)
      ASSERT_GE(learning_rate(config, step, 60), learning_rate(config, step + 1, 60));
  }
}

TEST(WeightDecay, FallsToZeroAtTheLastStep) {
  auto config = config_of(Schedule::wsd, 10);
  config.weight_decay = 0.5;
  EXPECT_EQ(weight_decay(config, 1, 101), 0.5);
  EXPECT_EQ(weight_decay(config, 101, 101), 0.5);
  config.weight_decay_schedule = DecaySchedule::linear;
  EXPECT_EQ(weight_decay(config, 1, 101), 0.5);
  EXPECT_DOUBLE_EQ(weight_decay(config, 26, 101), 0.375);
  EXPECT_EQ(weight_decay(config, 101, 101), 0);
  EXPECT_EQ(weight_decay(config, 300, 101), 0);
  EXPECT_EQ(weight_decay(config, 1, 1), 0.5);
  config.weight_decay_schedule = DecaySchedule::cosine;
  EXPECT_EQ(weight_decay(config, 1, 101), 0.5);
  EXPECT_DOUBLE_EQ(weight_decay(config, 26, 101), 0.25 * (1 + std::sqrt(0.5)));
  EXPECT_DOUBLE_EQ(weight_decay(config, 51, 101), 0.25);
  EXPECT_EQ(weight_decay(config, 101, 101), 0);
}

TEST(WeightDecay, FollowsTheRateAtAnyPeak) {
  for (const Schedule kind : kinds)
    for (const double peak : {0.0, 2.0}) {
      auto config = config_of(kind, 10);
      config.weight_decay = 0.5;
      config.weight_decay_schedule = DecaySchedule::rate;
      for (const std::int64_t step : {1, 10, 50, 90, 100, 150}) {
        config.learning_rate = 2;
        const double expected = 0.5 * learning_rate(config, step, 100) / 2;
        config.learning_rate = peak;
        EXPECT_DOUBLE_EQ(weight_decay(config, step, 100), expected) << word(kind) << step;
      }
    }
}

TEST(Momentum, WarmsUpInAStraightLine) {
  MuonConfig config;
  EXPECT_EQ(momentum(config, 1), 0.95);
  config.momentum_warmup_steps = 300;
  EXPECT_EQ(momentum(config, 1), 0.85);
  EXPECT_DOUBLE_EQ(momentum(config, 151), 0.9);
  EXPECT_EQ(momentum(config, 301), 0.95);
  EXPECT_EQ(momentum(config, 5000), 0.95);
}

TEST(Schedule, CountsStepsFromOne) {
  EXPECT_THROW(learning_rate(config_of(Schedule::cosine, 0), 0, 10), ContractError);
  EXPECT_THROW(weight_decay(config_of(Schedule::cosine, 0), 0, 10), ContractError);
  EXPECT_THROW(momentum(MuonConfig(), 0), ContractError);
}

}  // namespace
}  // namespace trireme::optim
