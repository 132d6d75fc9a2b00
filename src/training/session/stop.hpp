// SPDX-License-Identifier: Apache-2.0
// Reasons for a run to end early or to save outside of its schedule: signals, the wall clock, and
// requests of `trireme stop` and `trireme save`.
//
// SIGUSR1 requests a checkpoint, and the run continues. SIGTERM, SIGINT, SIGHUP, SIGXCPU and
// SIGUSR2 request a checkpoint and a stop (exit code 75). `trireme stop` does the same with exit
// code 76, also when there is another reason. A second SIGINT ends the process at once.
// SIGINT and SIGHUP stay ignored if they were ignored at the start (nohup). `run.walltime`, and the
// end of a scheduler's job (scheduler.hpp), request a stop early enough for one more step and one
// checkpoint, whose times are measured during the run.
//
// If the reader of standard output exits (`trireme deck.yaml | head`), the run continues: SIGPIPE
// is blocked and ignored, and log.txt has all output. SIGXFSZ is blocked and ignored as well: a
// file that would exceed `ulimit -f` is an error that names the file.
//
// 1. The signals are blocked in every thread. A thread of SignalScope receives them, and no handler
//    runs. A handler would be unsafe: oneDNN's generated fp32 kernels, with which the ceiling of a
//    run is measured, point the stack register at a buffer, and the kernel would write the signal
//    frame over the heap before it (observed: "corrupted size vs. prev_size" after a SIGTERM in the
//    middle of a matrix product).
// 2. So SignalScope is created before the first thread, including MPI's: threads inherit the mask.
// 3. Before training_begins() there is nothing to save, so a stop ends the job at once. Work that
//    is not a run, such as `trireme tune`, ends in the same way.
// 4. Afterwards, ranks agree at the end of a step: they add their requests, and all act on the sum,
//    so they act at the same step even if only one of them received a signal. An evaluation is
//    abandoned when a stop is requested (comm/control/interruption.hpp).
// 5. The signals stay blocked after the object's lifetime. The process is about to exit, and a
//    signal that arrives then must not replace its exit code.
#pragma once

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "base/error.hpp"
#include "device/energy.hpp"

#include "comm/control/world.hpp"

namespace trireme::session {

/// Of several, the first counts: a job that a user has stopped must not return to the queue.
enum class StopReason : std::uint8_t {
  request,
  terminate,
  interrupt,
  hangup,
  cpu_time,
  user_signal,
  time_limit
};
inline constexpr std::size_t num_stop_reasons = 7;
constexpr ExitCode code_of(StopReason reason) {
  return reason == StopReason::request ? ExitCode::stopped : ExitCode::requeue;
}

/// The requests of one rank at the end of a step, as numbers that ranks add up: 0 or 1 for each.
struct Requests {
  std::int64_t checkpoint = 0;  ///< requested since the last step
  std::array<std::int64_t, num_stop_reasons> stops{};
  std::int64_t writing = 0;     ///< this rank is writing a checkpoint
  std::int64_t unfinished = 0;  ///< compute has not finished the step
  /// Bytes of text in the rank's part of the step: not a request, but sent in the same exchange.
  std::int64_t text_bytes = 0;
  device::Energy energy = {};  ///< likewise
  /// More that is sent in this exchange: of the same length on all ranks, and summed in place.
  std::span<std::int64_t> more = {};

  void stop_for(StopReason reason) { stops.at(static_cast<std::size_t>(reason)) = 1; }
  /// One of the reasons, if a stop is requested.
  [[nodiscard]] std::optional<StopReason> stop() const;
};

/// The number of ranks with each request, and the sum of the bytes. Collective.
Requests agree(comm::World& world, const Requests& mine);

/// When a run must end, on the steady clock, and the source of this limit.
struct TimeLimit {
  double deadline = std::numeric_limits<double>::infinity();
  std::string source = "run.walltime";
};

/// Blocks the signals, and receives them during its lifetime. One object at a time, created in the
/// main thread. Any thread may call the members.
class SignalScope {
 public:
  /// `work`: name of work that has nothing to save, such as "trireme tune"; "" for a run.
  explicit SignalScope(std::string work = "");
  ~SignalScope();
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

  /// The reason of the requested stop, if any. It stays requested.
  [[nodiscard]] std::optional<StopReason> stop();
  /// Whether a checkpoint was requested since the last call.
  [[nodiscard]] bool take_checkpoint();
  /// Whether the process continued since the last call after SIGSTOP or SIGTSTP had stopped it.
  [[nodiscard]] bool take_suspension();
  void request_checkpoint();
  void request_stop(StopReason reason);
  /// Ends the job at once, without a checkpoint.
  void end_now(const std::string& why);

  /// Sets how any thread ends the whole job, and this rank. Otherwise only this process ends.
  void end_by(int rank, std::function<void(ExitCode)> end);
  /// Sets when the run must end. If this passes before training_begins(), it ends at once.
  void limit_time(TimeLimit limit);
  [[nodiscard]] double deadline();
  /// "SIGTERM was received", "run.walltime leaves no time for another step and a checkpoint".
  [[nodiscard]] std::string text_of(StopReason reason);
  /// From now on the run handles requests between its steps.
  void training_begins();

 private:
  void watch();
  void note(int signal);
  /// Takes signals that were sent to the calling thread only, which the watcher does not receive.
  void note_own();
  void end_preparation();  // holds the mutex

  const std::string work_;
  sigset_t watched_{};
  std::mutex mutex_;  // guards what follows
  Requests requested_;
  bool preparing_ = true, ending_ = false, suspended_ = false;
  TimeLimit limit_;
  int rank_ = 0;
  std::function<void(ExitCode)> end_;
  std::thread watcher_;  // last: it uses the other members
};

/// The wall clock of a run, on rank 0.
class Walltime {
 public:
  /// Sets the estimated seconds of a checkpoint, used until one was measured.
  void expect_checkpoint(double seconds) { expected_checkpoint_ = seconds; }
  /// Reports the seconds from the start of one step to the next, without waits for checkpoints.
  void step_took(double seconds) { slowest_step_ = std::max(slowest_step_, seconds); }
  void checkpoint_took(double seconds) {
    slowest_checkpoint_ = std::max(slowest_checkpoint_, seconds);
  }
  /// Whether `left_s` seconds may not suffice for another step and a checkpoint, plus, if
  /// `writing`, the one that is being written. Each counts with its longest time so far, times 1.5.
  [[nodiscard]] bool ends(double left_s, bool writing) const;

 private:
  double expected_checkpoint_ = 0;
  double slowest_step_ = 0;
  double slowest_checkpoint_ = 0;
};

}  // namespace trireme::session
