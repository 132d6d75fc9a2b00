// SPDX-License-Identifier: Apache-2.0
// Writes the record and the log of a run for the trainer: rows, spans, deck.resolved.yaml, and the
// table at the end. Rank 0 holds the record. All ranks call the collective members, because every
// rank contributes samples.
//
// A thread of rank 0 writes the record while steps run (record/run/run_writer.hpp). A member hands
// its data to that thread, and a failure ends the run at the next call.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/log.hpp"
#include "device/recorder.hpp"

#include "comm/control/world.hpp"
#include "reduce/engine.hpp"

#include "record/run/metrics_file.hpp"
#include "record/run/rows.hpp"
#include "record/run/run_directory.hpp"
#include "record/run/run_writer.hpp"

#include "session/job.hpp"
#include "session/saver.hpp"
#include "session/session.hpp"
#include "train/span_sample.hpp"
#include "train/trainer.hpp"

namespace trireme::train {

class Journal {
 public:
  /// Collective. Opens the record: a new one, or the existing one continued after `resumed_step`.
  /// Writes deck.resolved.yaml. `origin`: where the run's first weights came from, for the record.
  /// The session and the log must outlive the object.
  Journal(session::Session& session,
          const record::RunDirectory& directory,
          std::optional<std::int64_t> resumed_step,
          const record::NameValues& origin,
          Log& log);

  /// Writes a row of /steps if one is due, and the engine's bucket times as samples. Returns how
  /// long forward and backward waited for the network, in seconds.
  double step(const record::StepRow& row, const session::StepOutcome& outcome);
  /// Writes a row of another table. For /evaluation/SET the set's name and description precede it.
  template <class... Row>
  void append(const Row&... row) {
    write([=](record::RunRecord& file) { file.append(row...); });
  }
  void norms(std::int64_t step, std::span<const optim::LayerNorm> layers);
  /// Records that the validation, or else all sets' evaluation, due after `step` was not finished.
  void dropped(std::int64_t step, bool validation);
  /// Whether the start before dropped them after the step that this one resumes from; on all ranks.
  [[nodiscard]] bool owes_validation() const { return owes_[0] > 0; }
  [[nodiscard]] bool owes_evaluation() const { return owes_[1] > 0; }
  /// Waits until all rows are on the disk, or handed to the operating system. A checkpoint must not
  /// become visible before the rows of its steps, which the run that resumes there would miss.
  void flush(bool to_disk = true);
  /// Writes a row of /checkpoints, and its samples.
  void checkpoint(const session::Saver::Saved& saved);
  /// Collective. Records what was measured until `step`: the energy of each rank, statistics over
  /// all ranks and the whole spans of the sample. Called every few steps and at the end.
  void collect(std::int64_t step);
  /// Collective; takes about a second. Measures the rate of matrix products on this machine, prints
  /// and records the share of it that the median step achieved, or the mean step if the batch
  /// changes. Does not change the run's state. Does nothing without spans.
  void compare_with_ceiling(MeasureCeiling measure_ceiling);
  /// Collective. Writes the last samples until `step` and memory figures, and closes the record.
  /// Requires: compute has waited for all parameters. If run.h5 cannot be written, throws
  /// StorageError, or warns if the run is not `whole` and is to be resumed.
  void close(std::int64_t step, const session::Saver& saver, bool whole);

  /// Prints the time of a step by span name. The time of inner spans is subtracted from that of the
  /// outer one, so the lines add up. Rank 0 only.
  void print_summary() const;

 private:
  /// Waits that began before the step are between steps, and are contained in the spans there, for
  /// example that of an evaluation.
  void add_gathers(std::span<const reduce::GatherTimes> gathers, double step_began);
  /// On rank 0, passes `entry` to the thread that writes the record; blocks if too much is queued.
  /// The other ranks then wait without limit: a slow file system does not make rank 0 late.
  void write(record::RunWriter::Entry entry, std::size_t bytes = 0);

  session::Session& session_;
  const session::Job& job_;
  comm::World& world_;
  device::Recorder& recorder_;
  Log& log_;
  std::optional<record::MetricsFile> metrics_;  // rank 0 only, where the deck asks for it
  std::optional<record::RunWriter> writer_;  // rank 0 only; its thread writes the metrics as well
  /// Highest memory so far; GPUs only: in use on this rank's, by whatever else there is as well.
  struct Peak {
    std::int64_t resident = 0, device = 0;
  };
  [[nodiscard]] Peak peak() const;

  const SpanSample sample_;
  /// By name, where the places of its spans begin: one for each bucket, or one.
  std::vector<std::size_t> places_;
  std::int64_t collected_step_;    ///< of the last collect()
  device::Energy energy_;          ///< of this rank since then
  std::optional<Peak> peak_;       ///< before anything was measured
  std::int64_t owes_[2] = {0, 0};  ///< validation and evaluation: 1 or 0
  double tokens_ = 0;              // of all steps since the start
  // Seconds that compute waited for buckets, inside spans of these names.
  double waited_in_train_s_ = 0, waited_in_optim_s_ = 0;
};

}  // namespace trireme::train
