// SPDX-License-Identifier: Apache-2.0
// A deck's step on every rank by itself: no rank waits for another inside of it. What compute costs
// without communication is measured so, while the other ranks of the host compute as well.
//
// The step has two micro-steps, of which only the second reports gradients, and a bucket for each
// parameter, the time when its gradient is complete.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.hpp"

#include "comm/control/world.hpp"

#include "batches/dataset.hpp"

#include "session/job.hpp"
#include "session/session.hpp"

#include "plan/machine.hpp"

namespace trireme::bench {

/// Of a lone step, each with its own micro-batch.
inline constexpr int lone_micro_steps = 2;

/// Seconds of one step.
struct StepPieces {
  double step = 0;
  double micro_step = 0, last_micro_step = 0;
  double norm = 0, update = 0, matrices = 0;
  double waiting = 0;         ///< how much less the ranks' mean step takes than the slowest
  std::vector<double> ready;  ///< by bucket: share of the last micro-step

  [[nodiscard]] double rest() const {
    return step - micro_step - last_micro_step - norm - update - matrices;
  }
};

class LoneStep {
 public:
  /// On the threads that OpenMP has, on a CPU. `data`, the job's, outlive it.
  LoneStep(const session::Job& job, const batches::Split& data, comm::World& world, DType dtype);

  /// One more step of this rank.
  StepPieces step();
  /// All ranks begin one together: the pieces of the one that was slowest. Collective.
  StepPieces slowest();
  /// What a machine file holds of such steps, by their medians. The same on every rank.
  [[nodiscard]] plan::Compute compute_of(const std::vector<StepPieces>& steps) const;

  [[nodiscard]] device::Device& device() { return *session_.device; }

 private:
  comm::World& world_;
  const session::Job job_;
  const std::unique_ptr<comm::World> self_;
  session::Session session_;
  std::int64_t number_ = 0;
};

/// A step, or several, that have taken so long have warmed up what later ones use.
inline constexpr double warm_s = 1;

/// Rows of lone steps that take turns, so that a disturbance hits all of them: of `steps` each
/// after the warm-up, or of fewer, though of three, when all have taken `most_s`. The warm-up is
/// three of each, or fewer, though one, when all have taken `warm_s`. Collective; the same on every
/// rank.
std::vector<plan::Compute> measure_in_turns(
    const std::vector<LoneStep*>& lones,
    int steps,
    double most_s = std::numeric_limits<double>::infinity());

/// What one row takes at least, when a micro-step takes so long.
double least_lone_seconds(double micro_step_s);

}  // namespace trireme::bench
