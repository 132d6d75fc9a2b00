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

#include "base/dtype.hpp"
#include "base/log.hpp"
#include "device/device.hpp"
#include "device/recorder.hpp"
#include "layout/plan.hpp"

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

  /// A row of /steps when one is due, and the engine's bucket times as samples. Returns how long
  /// forward and backward waited for the network.
  double step(const record::StepRow& row, const session::StepOutcome& outcome);
  /// A row of another table. One of /evaluation/SET comes after the set's name and description.
  template <class... Row>
  void append(const Row&... row) {
    write([=](record::RunRecord& file) { file.append(row...); });
  }
  void norms(std::int64_t step, std::span<const optim::LayerNorm> layers);
  /// The validation, or else the evaluation of all sets, that was due after `step` was not
  /// finished.
  void dropped(std::int64_t step, bool validation);
  /// Whether the start before dropped them after the step that this one resumes from; on all ranks.
  [[nodiscard]] bool owes_validation() const { return owes_[0] > 0; }
  [[nodiscard]] bool owes_evaluation() const { return owes_[1] > 0; }
  /// Waits until every row so far is on the disk, or handed to the operating system. A checkpoint
  /// must not become visible before the rows of its steps: the run that resumes there would miss
  /// them.
  void flush(bool to_disk = true);
  /// A row of /checkpoints, and its samples.
  void checkpoint(const session::Saver::Saved& saved);
  /// Collective: brings what was measured until `step` to the record: the energy of each rank,
  /// statistics over all ranks and the whole spans of the sample. Called every few steps and at the
  /// end.
  void collect(std::int64_t step);
  /// Collective, about a second, without touching the run's state: measures what matrix products
  /// reach on this machine now, prints and records how much of it the median step achieved, or
  /// the mean one of a batch that changes. Nothing without spans.
  void compare_with_ceiling(MeasureCeiling measure_ceiling);
  /// Collective: the last samples until `step`, memory figures, and the record closed. Requires:
  /// compute has waited for all parameters. Throws StorageError when run.h5 cannot be written, or
  /// warns where the run is not `whole` and is to be resumed.
  void close(std::int64_t step, const session::Saver& saver, bool whole);

  /// Where the time of a step went, one line per span name; what is inside another span is taken
  /// out of it, so the lines add up. Rank 0 only.
  void print_summary() const;

 private:
  /// Waits that began before the step are between steps, and are in the spans there: an
  /// evaluation's, for one.
  void add_gathers(std::span<const reduce::GatherTimes> gathers, double step_began);
  /// On rank 0, `entry` with the record, while steps run. When too much waits already, so does
  /// this; the other ranks then wait however long it takes: a file system that is slow is not a
  /// rank that is late.
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
