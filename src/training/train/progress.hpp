// SPDX-License-Identifier: Apache-2.0
// Shows the progress of a run: a bar on a terminal, and lines elsewhere and in the log file.
//
// A line is printed for each of the first 10 steps, for every 10th step up to 100, for every 100th
// after that, and for the last step, so the log of a million steps stays readable. The remaining
// time is the number of remaining tokens times a moving average of the time per token, which omits
// the first step of the run.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "base/log.hpp"

#include "session/session.hpp"

namespace trireme::train {

/// " (1.2340 bits per byte)"; "" for NaN.
std::string bits_text(double bits_per_byte);

/// Whether step `step` of `steps` gets a line of its own.
bool has_line(std::int64_t step, std::int64_t first_step, std::int64_t steps);

class Progress {
 public:
  /// `bar`: draw on a terminal. `flops_per_token` turns tokens/s into TFLOP/s of all ranks.
  Progress(Log& log, bool bar, std::int64_t first_step, std::int64_t steps, double flops_per_token);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `tokens_left`: of the steps after `step`. `noise_scale`: in tokens; NaN: not known.
  void step(std::int64_t step,
            const session::StepOutcome& outcome,
            double tokens_left,
            double noise_scale = std::numeric_limits<double>::quiet_NaN());
  /// Makes room for a line that is printed elsewhere.
  void clear();
  /// Seconds that the remaining steps will take, as far as known; negative before the second step.
  [[nodiscard]] double remaining_seconds() const;

 private:
  void draw(std::int64_t step, double loss, double rate);

  Log& log_;
  const bool bar_;
  const std::int64_t first_step_;
  const std::int64_t steps_;
  const double flops_per_token_;
  double tokens_left_ = 0;
  double seconds_per_token_ = 0;
  std::int64_t measured_ = 0;
  double last_drawn_ = 0;
  bool drawn_ = false;
};

/// The rank that a launcher gave to this process in its environment: Open MPI, PMIx, PMI (MPICH and
/// its relatives) or Slurm. Null without one.
const char* launched_rank();

/// Whether a person reads standard output. Open MPI gives every rank a pseudo-terminal, so under
/// a launcher it is the launcher's own standard output that counts.
bool terminal_listens();

}  // namespace trireme::train
