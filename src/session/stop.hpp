// SPDX-License-Identifier: Apache-2.0
// Why a run may end early or save out of turn: signals and the wall clock.
//
// SIGUSR1 asks for a checkpoint and goes on; SIGUSR2 and SIGTERM ask for a checkpoint and a stop
// (exit 75); `run.walltime`, and under Slurm the end of the job, are a stop asked for in time for
// one more step and one checkpoint, whose costs are measured as the run goes.
//
// A reader of standard output that goes away (`trireme deck.yaml | head`) is no reason to end:
// SIGPIPE is blocked as well, and dropped; log.txt has all of it. So is SIGXFSZ: a file that
// would grow beyond `ulimit -f` is an error with its name.
//
// 1. The signals are blocked in every thread and polled between steps; no handler ever runs. Any
//    handler would be unsafe: oneDNN's generated fp32 kernels point the stack register at a buffer
//    of theirs, and the kernel would write the signal frame over the heap before it (observed:
//    "corrupted size vs. prev_size" after a SIGTERM in the middle of a matrix product).
// 2. So SignalScope is made before the first thread, MPI's included: threads inherit the mask.
// 3. Ranks agree at the end of a step: they add up the requests of all, and all act on the sum, so
//    they act at the same step even when a signal reached one of them only.
#pragma once

#include <csignal>
#include <cstdint>
#include <optional>

#include "comm/control/world.hpp"

namespace trireme::session {

/// The requests of one rank at the end of a step, as numbers that ranks add up: 0 or 1 for each.
struct Requests {
  std::int64_t checkpoint = 0;  ///< asked for since the last step
  std::int64_t stop = 0;
  std::int64_t writing = 0;     ///< a checkpoint is being written here
  std::int64_t unfinished = 0;  ///< compute has not finished the step
  /// Bytes of text in the rank's part of the step: no request, but it travels with them.
  std::int64_t text_bytes = 0;
};

/// How many ranks have each request, and the sum of the bytes. Collective.
Requests agree(comm::World& world, const Requests& mine);

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

/// When the Slurm job that this process belongs to ends, in seconds since 1970, as the job's
/// environment states (SLURM_JOB_END_TIME). Nothing outside Slurm and for jobs without an end.
std::optional<double> slurm_end();

/// The wall clock of a run, on rank 0.
class Walltime {
 public:
  /// The run ends at `deadline` on the steady clock; nothing: it does not.
  explicit Walltime(std::optional<double> deadline) : deadline_(deadline) {}

  /// What the first checkpoint will take, to go by until one was written.
  void expect_checkpoint(double seconds) { expected_checkpoint_ = seconds; }
  /// One step and what was done until the next, without waiting for checkpoints.
  void step_took(double seconds);
  void checkpoint_took(double seconds);
  /// Whether another step and a checkpoint after it might not fit any more, and before that one the
  /// rest of one that is being written. All count at their slowest so far, and a half more.
  [[nodiscard]] bool ends(double now, bool writing) const;

 private:
  std::optional<double> deadline_;
  double expected_checkpoint_ = 0;
  double slowest_step_ = 0;
  double slowest_checkpoint_ = 0;
};

}  // namespace trireme::session
