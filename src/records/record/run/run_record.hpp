// SPDX-License-Identifier: Apache-2.0
// The record of a run in progress: rows are appended to RUN_DIR/steps.jsonl (run_log.hpp), and
// RUN_DIR/run.h5 (run_file.hpp) is derived from it at intervals. Only rank 0 has a RunRecord.
//
// 1. When append() returns, the operating system has the row, so kill -9 loses no row. A power cut
//    loses the rows since the last sync. Syncs are at least `sync_seconds` apart, and further apart
//    if they would take more than `sync_share` of the time.
// 2. run.h5 is written whole to run.h5.tmp, synced and renamed: at the start, at checkpoints, after
//    `file_seconds`, and at the end, but never so often that it takes more than `file_share` of the
//    time. A failure is reported once and retried at the next occasion; only close() throws it.
// 3. Spans are kept in memory, up to `span_bytes`, and written to run.h5 only: a kill loses those
//    since its last write. Spans of earlier starts are read from the existing run.h5 if the run
//    wrote exactly these bytes; any other file is moved aside.
// 4. Nothing is overwritten: create() requires a directory without a log, and resume() one with a
//    log of this run. A resume appends a line that withdraws the rows of later steps.
// 5. After append() has failed, the object may only be destroyed.
// 6. One thread uses a RunRecord.
#pragma once

#include <cstdint>
#include <functional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "device/recorder.hpp"

#include "record/run/name_values.hpp"
#include "record/run/rows.hpp"
#include "record/run/run_file.hpp"
#include "record/run/run_log.hpp"

namespace trireme::record {

/// Facts that a run records at each start.
struct RunHeader {
  NameValues facts;                ///< root attributes that are texts
  NameValues deck;                 ///< dotted key, value as in YAML
  std::vector<std::string> hosts;  ///< host of each rank, in rank order
  std::vector<BucketRow> buckets;  ///< in bucket order
  std::string tokenizer = {};      ///< text::Tokenizer::serialized(); empty: not known
  std::vector<std::pair<std::string, std::int64_t>> counts =
      {};  ///< root attributes that are numbers
};

struct RunRecordOptions {
  double sync_seconds = 2, sync_share = 0.02;
  double file_seconds = 60, file_share = 0.005;
  std::int64_t span_bytes = std::int64_t{256} << 20U;
  std::function<double()> clock = device::steady_seconds;
  /// Receives problems with run.h5 as sentences.
  std::function<void(const std::string&)> warn = [](const std::string&) {};
};

class RunRecord {
 public:
  /// Creates a record that starts after `step`. Throws UserError if `directory` has a log already,
  /// StorageError if the log cannot be written.
  static RunRecord create(const std::string& directory,
                          const RunHeader& header,
                          RunRecordOptions options = {},
                          std::int64_t step = 0);
  /// Continues a record after `step`, and withdraws the rows of later steps. `before`: the result
  /// of look_at_log(). Throws UserError if the log belongs to another run.
  static RunRecord resume(const std::string& directory,
                          const RunHeader& header,
                          std::int64_t step,
                          const LogFacts& before,
                          RunRecordOptions options = {});
  RunRecord(RunRecord&&) noexcept = default;
  /// Syncs and writes run.h5; prints a failure on stderr instead of throwing.
  ~RunRecord();

  /// Appends a row of a table in rows.hpp. run.h5 is written soon after a CheckpointRow.
  template <class Row>
  requires(!std::ranges::range<Row>) void append(const Row& row);
  /// `set` names a group of run.h5; `of` describes the set.
  void append(const std::string& set, const std::string& of, const EvaluationRow& row);
  template <class Row>
  requires(!std::is_same_v<Row, device::TimeSample>) void append(const std::vector<Row>& rows) {
    for (const Row& row : rows) append(row);
  }
  /// Records that the validation, or else all sets' evaluation, due after `step` did not finish.
  void append_dropped(std::int64_t step, bool validation);
  void append(std::span<const device::TimeSample> spans);
  /// Number of spans that were dropped because `span_bytes` were reached.
  [[nodiscard]] std::int64_t spans_left_out() const { return spans_left_out_; }

  /// Replaces another file in the run directory. If the present one is not as the run wrote it, it
  /// is moved aside, with a warning. `before`: the log at the start, with the files that the run
  /// wrote. Throws StorageError.
  void replace_text_file(const char* name, const std::string& text, const LogFacts& before);

  /// Sets "flops_per_token", "dropped", … Replaces an earlier value.
  void set_timing_fact(const std::string& name, double value, std::string_view unit);
  /// Calendar time of each rank's anchor, in rank order: seconds since 1970.
  void set_anchors(std::span<const double> seconds);
  /// Sets an amount of memory in bytes. Replaces an earlier value.
  void set_memory(const std::string& name, std::int64_t bytes);

  /// Syncs and writes run.h5 if that is due. Throws StorageError when the log cannot be synced.
  void do_due();
  /// All rows are on the disk when this returns. Throws StorageError.
  void sync();
  /// Syncs and writes run.h5. Throws StorageError; nothing may be appended afterwards.
  void close();

 private:
  RunRecord(std::string directory, RunLog log, std::int64_t first_step, RunRecordOptions options);
  void start(const RunHeader& header, bool with_tokenizer);
  void append_line(std::string_view kind, const std::string& fields);
  void write_file();
  void write_file_or_warn();

  std::string directory_;
  RunLog log_;
  Rewinds rewinds_;
  Spans spans_;
  std::int64_t spans_left_out_ = 0;
  std::int64_t first_step_;  ///< first step that this start may record
  RunRecordOptions options_;
  double last_sync_ = 0, sync_took_ = 0;  ///< when the last sync ended, and how long it took
  double last_file_ = 0, file_took_ = 0;
  bool changed_ = false;      ///< since run.h5 was last written
  bool file_wanted_ = false;  ///< write it as soon as file_share allows
  bool file_fails_ = false;   ///< writing it failed, and that was reported
  bool closed_ = false;
};

/// Throws UserError if the directory has no log of a run, StorageError if it cannot be read.
void expect_record(const std::string& directory);

/// Rebuilds RUN_DIR/run.h5 from the log and from the spans of the existing run.h5, while no run
/// uses the directory. Returns what was done, as sentences. Requires: expect_record().
std::vector<std::string> rebuild_run_file(const std::string& directory);

/// Whether RUN_DIR/run.h5 lacks rows of the log because the run was killed before it could write
/// them. A file that another program changed does not count. Throws StorageError.
bool run_file_is_behind(const std::string& directory);

}  // namespace trireme::record
