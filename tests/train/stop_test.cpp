// SPDX-License-Identifier: Apache-2.0
#include "train/stop.hpp"

#include <gtest/gtest.h>

namespace trireme::train {
namespace {

TEST(SignalScope, ACheckpointIsAskedForOncePerSignal) {
  SignalScope signals;
  EXPECT_EQ(signals.take().checkpoint, 0);
  raise(SIGUSR1);
  EXPECT_EQ(signals.take().checkpoint, 1);
  EXPECT_EQ(signals.take().checkpoint, 0);
}

TEST(SignalScope, AStopStaysAskedFor) {
  for (const int number : {SIGUSR2, SIGTERM}) {
    SignalScope signals;
    EXPECT_EQ(signals.take().stop, 0);
    raise(number);
    EXPECT_EQ(signals.take().stop, 1);
    EXPECT_EQ(signals.take().stop, 1);
    EXPECT_EQ(signals.take().checkpoint, 0);
  }
}

TEST(Walltime, EndsWhileAStepAndACheckpointStillFit) {
  Walltime clock(100, 1000);
  EXPECT_FALSE(clock.ends(1099));
  clock.step_took(2);
  clock.checkpoint_took(4);
  clock.step_took(1);
  EXPECT_FALSE(clock.ends(1090.9));
  EXPECT_TRUE(clock.ends(1091));
}

TEST(Walltime, WithoutALimitNeverEnds) {
  Walltime clock(0, 0);
  clock.step_took(1e9);
  EXPECT_FALSE(clock.ends(1e12));
}

}  // namespace
}  // namespace trireme::train
