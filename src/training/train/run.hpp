// SPDX-License-Identifier: Apache-2.0
// What a run consists of between its start and its end, and how it starts: from initial values,
// from given weights, or from the newest checkpoint. The trainer makes its steps.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/log.hpp"

#include "comm/control/world.hpp"

#include "record/run/run_directory.hpp"
#include "record/run/run_requests.hpp"

#include "session/job.hpp"
#include "session/saver.hpp"
#include "session/session.hpp"
#include "session/stop.hpp"
#include "train/evaluation_sets.hpp"
#include "train/journal.hpp"
#include "train/noise_scale.hpp"
#include "train/progress.hpp"
#include "train/resume.hpp"

namespace trireme::train {

struct Run {
  /// Collective, like all members. Opens the run directory and the data, and builds the session.
  /// The arguments must outlive the object.
  Run(const session::Job& job,
      comm::World& world,
      Log& log,
      session::SignalScope& signals,
      session::MemoryCopies& copies);

  /// Initial values or the newest checkpoint, and the files of the run, unless it is finished.
  void start();
  /// Throws StorageError if files that the run writes would be lost.
  void expect_in_place();
  void clear_progress() {
    if (progress)
      progress->clear();
  }

  const session::Job& job;
  comm::World& world;
  Log& log;
  session::SignalScope& signals;
  session::MemoryCopies& copies;
  record::RunDirectory directory;
  std::unique_ptr<record::RunRequests> run_requests;  ///< rank 0 only
  std::optional<record::RunDirectory> checkpoints;    ///< where the deck has them elsewhere
  batches::Split data;
  session::Session training;
  session::Saver saver;
  std::optional<Journal> journal;
  std::optional<Progress> progress;       ///< rank 0 only
  std::optional<EvaluationSets> sets;     ///< where the deck has any
  std::optional<NoiseScale> noise_scale;  ///< where the deck asks for it
  bool finished = false;                  ///< an earlier start made all its steps
  std::int64_t first_step = 1;
  std::int64_t saved_step = -1;  ///< the step of the newest checkpoint, begun or done

 private:
  void open_files(const std::optional<Resumed>& resumed,
                  const record::NameValues& origin,
                  const std::string& data_hash);
};

}  // namespace trireme::train
