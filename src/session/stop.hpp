// SPDX-License-Identifier: Apache-2.0
// Reasons for a run to end early or to save outside of its schedule: signals and the wall clock.
//
// SIGUSR1 requests a checkpoint, and the run continues. SIGUSR2 and SIGTERM request a checkpoint
// and a stop (exit code 75). `run.walltime`, and under Slurm the end of the job, request a stop
// early enough for one more step and one checkpoint, whose times are measured during the run.
//
// If the reader of standard output exits (`trireme deck.yaml | head`), the run continues: SIGPIPE
// is blocked and ignored, and log.txt has all output. SIGXFSZ is blocked and ignored as well: a
// file that would exceed `ulimit -f` is an error that names the file.
//
// 1. The signals are blocked in every thread and polled between steps; no handler ever runs. Any
//    handler would be unsafe: oneDNN's generated fp32 kernels, with which the ceiling of a run is
//    measured, point the stack register at a buffer of their own, and the kernel would write the
//    signal frame over the heap before it (observed: "corrupted size vs. prev_size" after a SIGTERM
//    in the middle of a matrix product).
// 2. So SignalScope is made before the first thread, MPI's included: threads inherit the mask.
// 3. Ranks agree at the end of a step: they add up their requests, and all act on the sum, so
//    they act at the same step even when only one of them received a signal.
#pragma once

#include <csignal>
#include <cstdint>
#include <optional>

#include "comm/control/world.hpp"

namespace trireme::session {

/// The requests of one rank at the end of a step, as numbers that ranks add up: 0 or 1 for each.
struct Requests {
  std::int64_t checkpoint = 0;  ///< requested since the last step
  std::int64_t stop = 0;
  std::int64_t writing = 0;     ///< this rank is writing a checkpoint
  std::int64_t unfinished = 0;  ///< compute has not finished the step
  /// Bytes of text in the rank's part of the step: not a request, but sent in the same exchange.
  std::int64_t text_bytes = 0;
};

/// The number of ranks with each request, and the sum of the bytes. Collective.
Requests agree(comm::World& world, const Requests& mine);

/// Blocks the signals during its lifetime. One object at a time, in the main thread.
class SignalScope {
 public:
  SignalScope();
  ~SignalScope();
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

  /// Takes the signals that have arrived; never waits. A stop stays requested; a checkpoint is
  /// requested by one call only.
  [[nodiscard]] Requests take();

 private:
  sigset_t watched_{};
  sigset_t previous_{};
  bool stop_ = false;
};

/// The end of the Slurm job of this process, in seconds since 1970, from the job's environment
/// (SLURM_JOB_END_TIME). Nothing outside Slurm and for jobs without a time limit.
std::optional<double> slurm_end();

/// The wall clock of a run, on rank 0.
class Walltime {
 public:
  /// The run ends at `deadline` on the steady clock; nothing: it has no time limit.
  explicit Walltime(std::optional<double> deadline) : deadline_(deadline) {}

  /// Sets the estimated seconds of a checkpoint, used until one was measured.
  void expect_checkpoint(double seconds) { expected_checkpoint_ = seconds; }
  /// Reports the seconds from the begin of one step to the next, without waits for checkpoints.
  void step_took(double seconds);
  void checkpoint_took(double seconds);
  /// Whether the time left may be too short for another step and a checkpoint after it, plus, if
  /// `writing`, the checkpoint that is being written. Each counts with its longest time so far,
  /// times 1.5.
  [[nodiscard]] bool ends(double now, bool writing) const;

 private:
  std::optional<double> deadline_;
  double expected_checkpoint_ = 0;
  double slowest_step_ = 0;
  double slowest_checkpoint_ = 0;
};

}  // namespace trireme::session
