// SPDX-License-Identifier: Apache-2.0
// What the trainer writes down: rows and samples for run.h5, deck.resolved.yaml, and the table at
// the end. Rank 0 holds the file; the collective members are called by all ranks, because every
// rank has samples to give.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/dtype.hpp"
#include "base/log.hpp"

#include "device/device.hpp"
#include "layout/plan.hpp"

#include "comm/world.hpp"
#include "timing/recorder.hpp"

#include "reduce/engine.hpp"

#include "record/run_directory.hpp"
#include "record/run_file.hpp"

#include "train/job.hpp"
#include "train/session.hpp"

namespace trireme::train {

class Journal {
 public:
  /// Collective. Opens run.h5: a new one, or the existing one continued after `resumed_step`.
  /// Writes deck.resolved.yaml.
  Journal(const Job& job,
          const layout::Plan& plan,
          const device::Device& device,
          DType dtype,
          const record::RunDirectory& directory,
          std::optional<std::int64_t> resumed_step,
          timing::Recorder& recorder,
          comm::World& world);

  /// A row of /steps when one is due, and the engine's bucket times as samples.
  void step(const record::StepRow& row, const reduce::Engine& engine);
  void validation(std::int64_t step, double loss);
  /// Collective: brings all ranks' samples to the file. Called every few steps and at the end.
  void collect();
  /// Collective: the last samples, memory figures, and the file closed.
  void close(const Session& session);

  /// Where the time of a step went, one line per span name. Rank 0 only.
  void print_summary(Log& log) const;

 private:
  const Job& job_;
  comm::World& world_;
  timing::Recorder& recorder_;
  std::optional<record::RunFile> file_;  // rank 0 only
};

}  // namespace trireme::train
