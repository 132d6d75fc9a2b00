// SPDX-License-Identifier: Apache-2.0
// The record of a run while it goes on: rows are appended to RUN_DIR/steps.jsonl (run_log.hpp), and
// RUN_DIR/run.h5 (run_file.hpp) is made from it every now and then. Rank 0 alone has one.
//
// 1. A row is with the operating system when append() returns, and on the disk at the next sync:
//    after `sync_seconds`, or where the disk is slow so much later that syncing takes `sync_share` of
//    the time at most. So kill -9 costs no row, and a power cut those of the last seconds.
// 2. run.h5 is written whole to run.h5.tmp, synced and renamed: at the start, at checkpoints, after
//    `file_seconds`, and at the end, but never so often that it takes more than `file_share` of the
//    time. A failure is told once and tried again at the next occasion; close() alone throws it.
// 3. Spans wait in memory, `span_bytes` of them at most, and are in run.h5 only: a kill costs those
//    since it was last written. Spans of earlier starts come from the run.h5 that is there, if it is
//    byte for byte one that the run wrote; another file is moved aside.
// 4. Nothing is overwritten: create() needs a directory without a log, and resume() one with a log of
//    this run, in which later rows are taken back by a line.
// 5. After an append() that failed, the object may only be destroyed.
// 6. One thread uses a RunRecord.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/recorder.hpp"

#include "record/run/rows.hpp"
#include "record/run/run_log.hpp"

namespace trireme::record {

struct RunRecordOptions {
  double sync_seconds = 2, sync_share = 0.02;
  double file_seconds = 60, file_share = 0.005;
  std::int64_t span_bytes = std::int64_t{256} << 20U;
  std::function<double()> clock = device::steady_seconds;
  /// Gets what went wrong with run.h5, in sentences.
  std::function<void(const std::string&)> warn = [](const std::string&) {};
};

class RunRecord {
 public:
  /// A new record, for the steps after `step`. Throws UserError when `directory` has a log already,
  /// StorageError when the log cannot be written.
  static RunRecord create(const std::string& directory,
                          const RunHeader& header,
                          RunRecordOptions options = {},
                          std::int64_t step = 0);
  /// Continues a record after `step`; rows of later steps are taken back. `before`: what
  /// look_at_log() found. Throws UserError when the log is another run's.
  static RunRecord resume(const std::string& directory,
                          const RunHeader& header,
                          std::int64_t step,
                          const LogFacts& before,
                          RunRecordOptions options = {});
  RunRecord(RunRecord&&) noexcept;
  RunRecord& operator=(RunRecord&&) noexcept;
  /// Syncs and writes run.h5; prints a failure on stderr instead of throwing.
  ~RunRecord();

  /// A row of any type that has a Table (run_schema.hpp).
  void append(const StepRow& row);
  void append(const ValidationRow& row);
  void append(const SkippedRow& row);
  void append(const NoiseScaleRow& row);
  /// run.h5 is written soon after.
  void append(const CheckpointRow& row);
  /// `set` names a group of run.h5; `of` describes the set.
  void append(const std::string& set, const std::string& of, const EvaluationRow& row);
  void append(std::span<const RankSpanRow> rows);
  void append(std::span<const device::TimeSample> spans);
  /// How many spans were not kept, because there are `span_bytes` of them.
  [[nodiscard]] std::int64_t spans_left_out() const;

  /// "flops_per_token", "dropped", … Replaces an earlier value.
  void set_timing_fact(const std::string& name, double value, std::string_view unit);
  /// Calendar time of each rank's anchor, in rank order: seconds since 1970.
  void set_anchors(std::span<const double> seconds);
  /// Bytes. Replaces an earlier value.
  void set_memory(const std::string& name, std::int64_t bytes);

  /// Syncs and writes run.h5 if that is due. Throws StorageError when the log cannot be synced.
  void do_due();
  /// All rows are on the disk when this returns. Throws StorageError.
  void sync();
  /// sync(), and run.h5 is written. Throws StorageError; nothing may be appended afterwards.
  void close();

 private:
  class Impl;
  explicit RunRecord(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Throws UserError when there is no log of a run, StorageError.
void expect_record(const std::string& directory);

/// Makes RUN_DIR/run.h5 again from the log, and from the spans of the run.h5 that is there, while no
/// run uses the directory. Returns what was done, in sentences. Requires: expect_record().
std::vector<std::string> rebuild_run_file(const std::string& directory);

/// Whether RUN_DIR/run.h5 lacks what the log has, because the run was killed before it could write
/// it; what another program made of it does not count. Throws StorageError.
bool run_file_is_behind(const std::string& directory);

}  // namespace trireme::record
