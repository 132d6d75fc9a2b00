// SPDX-License-Identifier: Apache-2.0
#include "train/spikes.hpp"

#include <cmath>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::train {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST(Spikes, NameTheLayerOnceAndTheCommandThatListsDocuments) {
  Spikes spikes;
  std::vector<optim::LayerNorm> norms(4, {.gradient = 1});
  for (int step = 1; step <= 20; ++step)
    EXPECT_THAT(spikes.look(step, 2 + 0.01 * (step % 3), norms), IsEmpty()) << step;
  norms[2].gradient = 9;
  EXPECT_EQ(spikes.look(21, 9.2, norms),
            "the norm of the gradient, 9.2, is 4.6 times its median, that of block 1 9.0 times. "
            "`trireme data DECK --step 21` lists the documents of this step");
  EXPECT_THAT(spikes.look(22, 9.1, norms), IsEmpty());  // the spike continues
  EXPECT_THAT(spikes.look(23, 2, norms), IsEmpty());
  EXPECT_THAT(spikes.look(24, 20, {}), HasSubstr("is 10.0 times its median. `trireme"));
}

TEST(Spikes, NameTheLayerWhenItIsMeasured) {
  Spikes spikes;
  std::vector<optim::LayerNorm> norms(4, {.gradient = 1});
  const auto look = [&](int step, double gradient) {
    return step % 10 == 0 ? spikes.look(step, gradient, norms) : spikes.look(step, gradient, {});
  };
  for (int step = 1; step < 60; ++step)
    EXPECT_THAT(look(step, 2 + 0.01 * (step % 3)), IsEmpty()) << step;
  norms[2].gradient = 9;
  EXPECT_THAT(look(60, 9), Not(HasSubstr("that of"))) << "five measurements say nothing";
  norms[2].gradient = 1;
  for (int step = 61; step < 219; ++step)
    EXPECT_THAT(look(step, 2 + 0.01 * (step % 3)), IsEmpty()) << step;
  EXPECT_THAT(look(219, 9), Not(HasSubstr("that of")));
  norms[2].gradient = 9;
  EXPECT_THAT(look(220, 8), HasSubstr("is 4.0 times its median, that of block 1 9.0 times. "));
  EXPECT_THAT(look(221, 8), IsEmpty());
}

TEST(Spikes, AreNotSeenInTheFirstStepsOrInAFallingOrNoisyGradient) {
  Spikes first;
  for (int step = 1; step <= 15; ++step) EXPECT_THAT(first.look(step, 1, {}), IsEmpty());
  EXPECT_THAT(first.look(16, 100, {}), IsEmpty());
  Spikes falling;
  for (int step = 1; step <= 1000; ++step)
    EXPECT_THAT(falling.look(step, 20.0 / step, {}), IsEmpty()) << step;
  // A normal logarithm with a deviation of 0.5 is above 3 times its median in 1.4 % of the steps, and
  // never above 10 times the median distance, 3.4.
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal(0, 0.5);
  Spikes noisy;
  for (int step = 1; step <= 10'000; ++step)
    EXPECT_THAT(noisy.look(step, std::exp(normal(random)), {}), IsEmpty()) << step;
}

TEST(Spikes, AreSeenAfterAStepWithoutANorm) {
  Spikes spikes;
  for (int step = 1; step <= 40; ++step)
    EXPECT_THAT(spikes.look(step, step == 7 ? NAN : 1, {}), IsEmpty());
  EXPECT_THAT(spikes.look(41, 3.5, {}), HasSubstr("3.5 times"));
}

}  // namespace
}  // namespace trireme::train
