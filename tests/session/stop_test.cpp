// SPDX-License-Identifier: Apache-2.0
#include "session/stop.hpp"

#include <cerrno>

#include <gtest/gtest.h>
#include <unistd.h>

namespace trireme::session {
namespace {

TEST(SignalScope, IgnoresAClosedPipe) {
  SignalScope signals;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  EXPECT_EQ(::write(ends[1], "x", 1), -1);
  EXPECT_EQ(errno, EPIPE);
  const Requests taken = signals.take();
  EXPECT_EQ(taken.stop, 0);
  EXPECT_EQ(taken.checkpoint, 0);
  ::close(ends[1]);
}

TEST(SignalScope, RequestsACheckpointOncePerSignal) {
  SignalScope signals;
  EXPECT_EQ(signals.take().checkpoint, 0);
  raise(SIGUSR1);
  EXPECT_EQ(signals.take().checkpoint, 1);
  EXPECT_EQ(signals.take().checkpoint, 0);
}

TEST(SignalScope, KeepsRequestingAStop) {
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
  Walltime clock(1100.0);
  EXPECT_FALSE(clock.ends(1099, false));
  clock.step_took(2);
  clock.checkpoint_took(4);
  clock.step_took(1);
  EXPECT_FALSE(clock.ends(1090.9, false));
  EXPECT_TRUE(clock.ends(1091, false));
}

TEST(Walltime, CountsACheckpointThatIsBeingWritten) {
  Walltime clock(1100.0);
  clock.checkpoint_took(4);
  EXPECT_FALSE(clock.ends(1087.9, true));
  EXPECT_TRUE(clock.ends(1088, true));
  EXPECT_FALSE(clock.ends(1088, false));
}

TEST(Walltime, UsesTheExpectedTimeOfACheckpointUntilOneWasMeasured) {
  Walltime clock(1100.0);
  clock.expect_checkpoint(20);
  EXPECT_TRUE(clock.ends(1070, false));
  clock.checkpoint_took(4);
  EXPECT_FALSE(clock.ends(1070, false));
}

TEST(Walltime, WithoutALimitNeverEnds) {
  Walltime clock(std::nullopt);
  clock.step_took(1e9);
  EXPECT_FALSE(clock.ends(1e12, true));
}

TEST(SlurmEnd, IsReadFromTheEnvironmentOfTheJob) {
  const auto told = [](const char* text) {
    setenv("SLURM_JOB_END_TIME", text, 1);
    return slurm_end();
  };
  EXPECT_EQ(told("1790000000"), 1.79e9);
  for (const char* none : {"", "0", "-5", "soon", "17x", "4294967295", "4294967294"})
    EXPECT_EQ(told(none), std::nullopt) << none;
  unsetenv("SLURM_JOB_END_TIME");
  EXPECT_EQ(slurm_end(), std::nullopt);
}

}  // namespace
}  // namespace trireme::session
