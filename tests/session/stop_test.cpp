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

/// Runs `action` in a child process and returns its exit status.
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
      ::pause();  // the preparation does not check for signals
    });
    ASSERT_TRUE(WIFEXITED(status)) << number;
    EXPECT_EQ(WEXITSTATUS(status), 75) << number;
  }
}

TEST(SignalScope, TellsARequestFromOtherReasonsByItsExitCode) {
  for (const bool at_once : {false, true}) {
    const int status = in_a_child([at_once] {
      SignalScope signals;
      if (at_once)
        signals.end_now("");
      else
        signals.request_stop(StopReason::request);
      ::pause();
    });
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 76) << at_once;
  }
  SignalScope signals;
  signals.training_begins();
  raise(SIGTERM);
  EXPECT_EQ(code_of(signals.stop().value()), ExitCode::requeue);
  signals.request_stop(StopReason::request);  // the user wants to stop
  EXPECT_EQ(code_of(signals.stop().value()), ExitCode::stopped);
}

TEST(SignalScope, EndsThePreparationAtTheTimeLimit) {
  const int status = in_a_child([] {
    SignalScope signals;
    signals.limit_time({.deadline = 0});
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

TEST(SignalScope, TellsOnceThatTheProcessWasSuspended) {
  SignalScope signals;
  signals.training_begins();
  EXPECT_FALSE(signals.take_suspension());
  raise(SIGCONT);
  while (!signals.take_suspension()) std::this_thread::yield();
  EXPECT_FALSE(signals.take_suspension());
}

TEST(SignalScope, NamesWhatLimitsTheTime) {
  SignalScope signals;
  signals.training_begins();
  EXPECT_EQ(signals.text_of(StopReason::time_limit),
            "run.walltime leaves no time for another step and a checkpoint");
  signals.limit_time({.deadline = 7, .source = "the time limit of Slurm job 12 (squeue)"});
  EXPECT_EQ(signals.deadline(), 7);
  EXPECT_EQ(
      signals.text_of(StopReason::time_limit),
      "the time limit of Slurm job 12 (squeue) leaves no time for another step and a checkpoint");
  EXPECT_EQ(signals.text_of(StopReason::user_signal), "SIGUSR2 was received");
}

TEST(Walltime, EndsWhileAStepAndACheckpointStillFit) {
  Walltime clock;
  EXPECT_FALSE(clock.ends(1, false));
  clock.step_took(2);
  clock.checkpoint_took(4);
  clock.step_took(1);
  EXPECT_FALSE(clock.ends(9.1, false));
  EXPECT_TRUE(clock.ends(9, false));
}

TEST(Walltime, CountsACheckpointThatIsBeingWritten) {
  Walltime clock;
  clock.checkpoint_took(4);
  EXPECT_FALSE(clock.ends(12.1, true));
  EXPECT_TRUE(clock.ends(12, true));
  EXPECT_FALSE(clock.ends(12, false));
}

TEST(Walltime, UsesTheExpectedTimeOfACheckpointUntilOneWasMeasured) {
  Walltime clock;
  clock.expect_checkpoint(20);
  EXPECT_TRUE(clock.ends(30, false));
  clock.checkpoint_took(4);
  EXPECT_FALSE(clock.ends(30, false));
}

TEST(Walltime, WithoutALimitNeverEnds) {
  Walltime clock;
  clock.step_took(1e9);
  EXPECT_FALSE(clock.ends(TimeLimit{}.deadline, true));
}

}  // namespace
}  // namespace trireme::session
