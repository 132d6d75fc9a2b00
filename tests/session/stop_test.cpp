// SPDX-License-Identifier: Apache-2.0
#include "session/stop.hpp"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace trireme::session {
namespace {

constexpr std::pair<int, StopReason> stop_signals[] = {{SIGTERM, StopReason::terminate},
                                                       {SIGINT, StopReason::interrupt},
                                                       {SIGHUP, StopReason::hangup},
                                                       {SIGXCPU, StopReason::cpu_time},
                                                       {SIGUSR2, StopReason::user_signal}};

TEST(SignalScope, IgnoresAClosedPipe) {
  SignalScope signals;
  signals.training_begins();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  EXPECT_EQ(::write(ends[1], "x", 1), -1);
  EXPECT_EQ(errno, EPIPE);
  EXPECT_FALSE(signals.stop());
  EXPECT_FALSE(signals.take_checkpoint());
  ::close(ends[1]);
}

TEST(SignalScope, RequestsACheckpointOncePerSignal) {
  SignalScope signals;
  signals.training_begins();
  EXPECT_FALSE(signals.take_checkpoint());
  raise(SIGUSR1);
  EXPECT_TRUE(signals.take_checkpoint());
  EXPECT_FALSE(signals.take_checkpoint());
  EXPECT_FALSE(signals.stop());
}

TEST(SignalScope, KeepsRequestingAStop) {
  for (const auto& [number, reason] : stop_signals) {
    std::signal(number, SIG_DFL);  // a background job of a shell ignores SIGINT
    SignalScope signals;
    signals.training_begins();
    EXPECT_FALSE(signals.stop());
    raise(number);
    EXPECT_EQ(signals.stop(), reason);
    EXPECT_EQ(signals.stop(), reason);
    EXPECT_FALSE(signals.take_checkpoint());
  }
}

/// Runs `action` in a process of its own and returns how that ended.
template <class Action>
int in_a_child(const Action& action) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (const auto& one : stop_signals) std::signal(one.first, SIG_DFL);
    action();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(SignalScope, EndsAtOnceBeforeTheTrainingBegins) {
  for (const auto& [number, reason] : stop_signals) {
    const int status = in_a_child([number = number] {
      const SignalScope signals;
      ::kill(::getpid(), number);
      ::pause();  // nothing in the preparation looks at the signals
    });
    ASSERT_TRUE(WIFEXITED(status)) << number;
    EXPECT_EQ(WEXITSTATUS(status), 75) << number;
  }
}

TEST(SignalScope, EndsThePreparationAtTheTimeLimit) {
  const int status = in_a_child([] {
    SignalScope signals;
    signals.limit_preparation({.deadline = 0, .reason = StopReason::walltime});
    ::pause();
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 2);
}

TEST(SignalScope, ASecondInterruptEndsTheProcess) {
  const int status = in_a_child([] {
    SignalScope signals;
    signals.training_begins();
    ::kill(::getpid(), SIGINT);
    while (!signals.stop()) std::this_thread::yield();
    ::kill(::getpid(), SIGINT);
    for (;;) ::pause();
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGINT);
}

TEST(SignalScope, KeepsTheExitCodeOfAProcessThatIsAboutToExit) {
  for (const auto& [number, reason] : stop_signals)
    EXPECT_EQ(in_a_child([number = number] {
                SignalScope().training_begins();
                raise(number);
              }),
              0);
}

TEST(SignalScope, LeavesSignalsIgnoredThatWere) {
  const int status = in_a_child([] {
    std::signal(SIGHUP, SIG_IGN);  // as nohup does
    SignalScope signals;
    signals.training_begins();
    raise(SIGHUP);
    ::_exit(signals.stop() ? 1 : 0);
  });
  EXPECT_EQ(status, 0);
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
  Walltime clock(TimeLimit{}.deadline);
  clock.step_took(1e9);
  EXPECT_FALSE(clock.ends(1e12, true));
}

TEST(SlurmEnd, IsReadFromTheEnvironmentOfTheJob) {
  constexpr double now = 1.7e9;
  std::string warning;
  const auto told = [&](const char* text) {
    setenv("SLURM_JOB_END_TIME", text, 1);
    warning.clear();
    return slurm_end(now, warning);
  };
  EXPECT_EQ(told("1790000000"), 1.79e9);
  for (const char* none : {"", "0", "-5", "4294967295", "4294967294"}) {
    EXPECT_EQ(told(none), std::nullopt) << none;
    EXPECT_EQ(warning, "") << none;
  }
  for (const char* wrong : {"soon", "17x", "1000000000", "1700000000"}) {
    EXPECT_EQ(told(wrong), std::nullopt) << wrong;
    EXPECT_NE(warning.find(wrong), std::string::npos) << warning;
  }
  unsetenv("SLURM_JOB_END_TIME");
  EXPECT_EQ(slurm_end(now, warning), std::nullopt);
}

}  // namespace
}  // namespace trireme::session
