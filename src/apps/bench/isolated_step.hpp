// SPDX-License-Identifier: Apache-2.0
// Measures the compute time of a deck's step without communication: every rank runs the step
// independently, while the other ranks of its host compute as well.
//
// The step has two micro-steps, of which only the second reports gradients, and a bucket for each
// parameter, the time when its gradient is complete.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/dtype.hpp"

#include "comm/control/world.hpp"

#include "batches/dataset.hpp"

#include "session/job.hpp"
#include "session/session.hpp"

#include "plan/machine.hpp"

namespace trireme::bench {

inline constexpr int isolated_micro_steps = 2;

/// Seconds of one step.
struct StepPieces {
  double step = 0;
  double micro_step = 0, last_micro_step = 0;
  double norm = 0, update = 0, matrices = 0;
  double waiting = 0;         ///< slowest rank's step minus the mean over ranks
  std::vector<double> ready;  ///< by bucket: share of the last micro-step

  auto fields() {
    return std::tie(step, micro_step, last_micro_step, norm, update, matrices, ready);
  }
  [[nodiscard]] double rest() const {
    return step - micro_step - last_micro_step - norm - update - matrices;
  }
};

class IsolatedStep {
 public:
  /// On a CPU, with OpenMP's number of threads. `data` are the job's and must outlive the object.
  IsolatedStep(const session::Job& job,
               const batches::Split& data,
               comm::World& world,
               DType dtype);

  /// Runs a step on this rank.
  StepPieces step();
  /// The entry of a machine file from the medians of `steps` steps, after a warm-up of three steps,
  /// or of one if it takes `warm_s`. Collective; the same on every rank.
  [[nodiscard]] plan::Compute measure(int steps);

  [[nodiscard]] device::Device& device() { return *session_.device; }

 private:
  /// Runs a step that all ranks begin together; returns the times of the slowest rank. Collective.
  StepPieces slowest();

  comm::World& world_;
  const session::Job job_;
  const std::unique_ptr<comm::World> self_;
  session::Session session_;
  std::int64_t number_ = 0;
};

inline constexpr double warm_s = 1;  ///< duration of steps that is enough for warm-up

}  // namespace trireme::bench
