// SPDX-License-Identifier: Apache-2.0
#include "train/progress.hpp"

#include <array>
#include <cstdlib>

#include <gtest/gtest.h>

namespace trireme::train {
namespace {

TEST(Progress, LinesGetSparserAndTheLastIsAlwaysThere) {
  int lines = 0;
  for (std::int64_t step = 1; step <= 10'000; ++step) lines += has_line(step, 1, 10'000) ? 1 : 0;
  EXPECT_EQ(lines, 10 + 9 + 99);
  EXPECT_TRUE(has_line(10, 1, 777));
  EXPECT_FALSE(has_line(11, 1, 777));
  EXPECT_TRUE(has_line(90, 1, 777));
  EXPECT_FALSE(has_line(110, 1, 777));
  EXPECT_TRUE(has_line(777, 1, 777));
}

TEST(Progress, AResumedRunShowsItsFirstTenSteps) {
  for (std::int64_t step = 5'003; step < 5'013; ++step)
    EXPECT_TRUE(has_line(step, 5'003, 10'000)) << step;
  EXPECT_FALSE(has_line(5'013, 5'003, 10'000));
}

TEST(Progress, KnowsTheLaunchersByTheirEnvironment) {
  const std::array variables{"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"};
  for (const char* name : variables) unsetenv(name);
  EXPECT_EQ(launched_rank(), nullptr);
  for (const char* name : variables) {
    setenv(name, "0", 1);
    EXPECT_STREQ(launched_rank(), "0") << name;
    unsetenv(name);
  }
}

session::StepOutcome outcome(std::int64_t tokens, double seconds) {
  session::StepOutcome made;
  made.tokens = tokens;
  made.seconds = seconds;
  return made;
}

TEST(Progress, RemainingTimeLeavesTheFirstStepOut) {
  Log log(false, "test");
  Progress progress(log, false, 1, 101, 1.0);
  progress.step(1, outcome(1, 100), 100);
  EXPECT_LT(progress.remaining_seconds(), 0);
  for (std::int64_t step = 2; step <= 11; ++step)
    progress.step(step, outcome(1, 2), 101 - static_cast<double>(step));
  EXPECT_DOUBLE_EQ(progress.remaining_seconds(), 2.0 * 90);
}

TEST(Progress, RemainingTimeKnowsOfLargerSteps) {
  Log log(false, "test");
  Progress progress(log, false, 1, 10, 1.0);
  for (std::int64_t step = 1; step <= 4; ++step)  // then six steps with three times as many tokens
    progress.step(step, outcome(10, 2), 220 - 10 * static_cast<double>(step));
  EXPECT_DOUBLE_EQ(progress.remaining_seconds(), 36);
  progress.step(5, outcome(30, 6), 150);
  EXPECT_DOUBLE_EQ(progress.remaining_seconds(), 30);
}

}  // namespace
}  // namespace trireme::train
