// SPDX-License-Identifier: Apache-2.0
// Why a run may end early or save out of turn: signals and the wall clock.
//
// SIGUSR1 asks for a checkpoint and goes on; SIGUSR2 and SIGTERM ask for a checkpoint and a stop
// (exit 75); `run.walltime` is a stop asked for in time for one more step and one checkpoint, whose
// costs are measured as the run goes.
//
// The handler only sets flags. Ranks agree at the end of a step: every rank adds its flags to the
// step's exchange and all act on the sum, so they act at the same step even when the signal reached
// one of them only.
#pragma once

#include <csignal>
#include <cstdint>

namespace trireme::train {

/// What was asked for since the last look, as 0 or 1 so that ranks can add them up.
struct Requests {
  std::int64_t checkpoint = 0;
  std::int64_t stop = 0;
};

/// Installs the handlers for its lifetime and puts the previous ones back. One at a time.
class SignalScope {
 public:
  SignalScope();
  ~SignalScope();
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

  /// Takes what has arrived. A stop stays asked for; a checkpoint is asked for once per signal.
  [[nodiscard]] Requests take();

 private:
  struct sigaction previous_[3]{};
};

/// The wall clock of a run, on rank 0.
class Walltime {
 public:
  /// `limit_seconds` counts from process start; 0 or less: no limit. `started_at` is the steady
  /// clock then.
  Walltime(double limit_seconds, double started_at)
      : limit_seconds_(limit_seconds), started_at_(started_at) {}

  void step_took(double seconds);
  void checkpoint_took(double seconds);
  /// Whether another step and a checkpoint after it might not fit any more. Both count at their
  /// slowest so far, and a half more.
  [[nodiscard]] bool ends(double now) const;

 private:
  double limit_seconds_;
  double started_at_;
  double slowest_step_ = 0;
  double slowest_checkpoint_ = 0;
};

}  // namespace trireme::train
