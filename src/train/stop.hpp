// SPDX-License-Identifier: Apache-2.0
// Why a run may end early or save out of turn: signals and the wall clock.
//
// SIGUSR1 asks for a checkpoint and goes on; SIGUSR2 and SIGTERM ask for a checkpoint and a stop
// (exit 75); `run.walltime` is a stop asked for in time for one more step and one checkpoint, whose
// costs are measured as the run goes.
//
// 1. The signals are blocked in every thread and looked at between steps; no handler ever runs. A
// handler would be unsafe here whatever it does: oneDNN's generated fp32 kernels point the stack
// register at a buffer of theirs, and the kernel would write the signal frame over the heap before
// it (seen: "corrupted size vs. prev_size" after a SIGTERM in the middle of a matrix product).
// 2. So SignalScope is made before the first thread, MPI's included: threads inherit the mask.
// 3. Ranks agree at the end of a step: every rank adds what it was asked to the step's exchange and
// all act on the sum, so they act at the same step even when a signal reached one of them only.
#pragma once

#include <csignal>
#include <cstdint>

namespace trireme::train {

/// What was asked for since the last look, as 0 or 1 so that ranks can add them up.
struct Requests {
  std::int64_t checkpoint = 0;
  std::int64_t stop = 0;
};

/// Blocks the signals for its lifetime. One at a time, in the main thread.
class SignalScope {
 public:
  SignalScope();
  ~SignalScope();
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

  /// Takes what has arrived; never waits. A stop stays asked for; a checkpoint is asked for once
  /// per look.
  [[nodiscard]] Requests take();

 private:
  sigset_t watched_{};
  sigset_t previous_{};
  bool stop_ = false;
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
