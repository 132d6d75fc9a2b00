// SPDX-License-Identifier: Apache-2.0
// RUN_DIR/run.h5: what a run was, did and learned. Rank 0 alone opens and writes it.
//
//   /            attributes filetype "trireme-run", version [1, 0], date_and_time, machine, and the
//                facts of RunHeader (software, software_version, git_sha1, compiler, …)
//   /deck        one string attribute per key of the newest session's resolved deck:
//                "optimizer.learning_rate"
//   /sessions    one row per start or resumption: date_and_time, first_step, ranks, machine, facts,
//                and the deck that its steps were made with
//   /steps       one dataset per column of StepRow
//   /buckets     one dataset per column of BucketRow, a row per bucket and start: what
//                the `index` of samples named reduce.… and gather.… counts
//   /validation  one dataset per column of ValidationRow
//   /evaluation  one group per set of evaluate.sets, with one dataset per column of
//                EvaluationRow; an attribute of the set's name describes it
//   /tokenizer   one string, from which the tokenizer of the run's tokens can be made again,
//                where it is known
//   /checkpoints one dataset per column of CheckpointRow
//   /skipped     one dataset per column of SkippedRow: steps that updated nothing
//   /noise_scale one dataset per column of NoiseScaleRow; empty unless the deck asks
//   /timings     samples (rows of device::TimeSample, of some ranks and steps), ranks (rows of
//                RankSpanRow, over all ranks), names (row i names id i), anchors;
//                attributes dropped, flops_per_token, …
//   /memory      one integer attribute per name, bytes
//   /blocks      hashes of the rows of /steps, /validation, /checkpoints, samples and /noise_scale
//                (row_hashes.hpp)
//
// Every dataset is 1-D and extendible and has the attributes `unit` and `help`.
//
// 1. Rows wait in memory until `flush_rows` of them or `flush_seconds` have passed; then they are
//    appended and the file is flushed; where the disk is slow, so much later that flushing takes
//    two per cent of the time at most. A process that is killed loses what waited, and no more. So
//    does one whose disk is full: room is taken before anything is written (h5/space.hpp).
// 2. create() never overwrites; resume() drops the rows of steps after the one resumed from.
// 3. After a StorageError the object is good for destruction only.
// 4. One thread uses a RunFile.
// 5. What also() was given gets the rows of a flush after it. Its failure is kept, in
//    also_problem(), and costs the file nothing.
// 6. The file's name is on the disk once it is open; its rows are after a sync().
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/recorder.hpp"

#include "record/run/name_values.hpp"

namespace trireme::record {

/// One row of /steps; the columns' units and meanings are in run_schema.hpp, beside their names.
struct StepRow {
  std::int64_t step = 0;  ///< counts from 1
  double loss = 0;        ///< mean over the global batch, before the step's update
  double bits_per_byte = std::numeric_limits<double>::quiet_NaN();  ///< NaN: not known
  double grad_norm = 0;                                             ///< before clipping
  double learning_rate = 0;
  std::int64_t tokens = 0;  ///< trained on since the run began, this step included
  double seconds = 0;       ///< wall time of the step, without evaluation and checkpoints
  double tokens_per_s = 0;
  double flops_per_s = 0;        ///< of all ranks, by the FLOP formula of the model
  double exposed_s = 0;          ///< compute waited for the network, on rank 0
  std::int64_t allocations = 0;  ///< scratch memory requests that the pool could not serve
};

/// One row of /validation.
struct ValidationRow {
  std::int64_t step = 0;
  double loss = 0;
  double bits_per_byte = std::numeric_limits<double>::quiet_NaN();  ///< NaN: not known
};

/// One row of /evaluation/NAME; NaN is what the set does not measure.
struct EvaluationRow {
  static constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

  std::int64_t step = 0;
  double loss = unknown, bits_per_byte = unknown;
  double accuracy = unknown, accuracy_error = unknown;
  double accuracy_per_token = unknown, accuracy_per_token_error = unknown;
  double accuracy_per_byte = unknown, accuracy_per_byte_error = unknown;
};

/// One row of /noise_scale: what train/noise_scale.hpp makes of one step's gradients. Squared norms
/// are of mean gradients; traces are of the covariance of a single sequence's gradient.
struct NoiseScaleRow {
  std::int64_t step = 0;
  double leaf_norm_squared = 0;  ///< mean over the leaves
  double norm_squared = 0;       ///< of the whole step
  double gradient_squared = 0, trace = 0;
  double smoothed_gradient_squared = 0, smoothed_trace = 0;
  double sequences = 0, tokens = 0;  ///< the noise scale; NaN: not known
};

/// One row of /timings/ranks: how the seconds that each rank spent in one kind of span, in some
/// steps together, differ over the ranks.
struct RankSpanRow {
  std::int64_t first_step = 0, last_step = 0;
  std::int64_t name = 0;   ///< as Sample::name
  std::int64_t index = 0;  ///< as Sample::index
  double min_s = 0;
  double median_s = 0;  ///< the lower one of an even count, at most 1/128 too large
  double max_s = 0;
  std::int64_t max_rank = 0;
};

/// One row of /skipped.
struct SkippedRow {
  std::int64_t step = 0;
  std::string found;  ///< where its gradient was not finite, for people
};

/// One row of /checkpoints, written when the checkpoint was safe.
struct CheckpointRow {
  std::int64_t step = 0;
  std::int64_t bytes = 0;  ///< of all ranks' files
  double copy_s = 0;       ///< of the state, before the run went on; 0: it was not copied
  double stall_s = 0;      ///< the run was paused, the copy included
  double write_s = 0;      ///< from the first byte to the last fsync, without waits between steps
};

/// One row of /buckets. How parameters share buckets follows from the deck, padding and shards from
/// the number of ranks, so a resumption may change all of it.
struct BucketRow {
  std::string first_parameter, last_parameter;  ///< in the order in which backward finishes them
  std::int64_t elements = 0;                    ///< padding included
  std::int64_t padding = 0;                     ///< between parameters and at the end
  std::int64_t shard_elements = 0;              ///< of one rank
};

class AlsoFiles;
struct RecordedRows;

struct RunHeader {
  NameValues facts;                ///< root attributes
  NameValues deck;                 ///< dotted key, value
  std::vector<std::string> hosts;  ///< of each rank, in rank order
  std::vector<BucketRow> buckets;  ///< in bucket order
  std::string tokenizer = {};      ///< text::Tokenizer::serialized(); empty: not known
};

struct RunFileOptions {
  std::size_t flush_rows = 16;
  double flush_seconds = 2.0;
  double flush_share = 0.02;  ///< of the time, at most; samples in excess are flushed all the same
  std::function<double()> clock = device::steady_seconds;
  bool rehearsal = false;  ///< nothing reaches the file: what would happen to it (run_trial.hpp)
};

class RunFile {
 public:
  /// A new file, for the steps after `step`. Throws UserError when `path` exists, StorageError when
  /// it cannot be written.
  static RunFile create(const std::string& path,
                        const RunHeader& header,
                        RunFileOptions options = {},
                        std::int64_t step = 0);
  /// Continues a file after `step`: later rows are dropped, /deck is replaced, /sessions gets a
  /// row and /buckets its rows. Throws UserError when the file is missing, not a whole HDF5 file,
  /// not a run file or of another version.
  static RunFile resume(const std::string& path,
                        const RunHeader& header,
                        std::int64_t step,
                        RunFileOptions options = {});
  /// The last step in a run file; 0 when it has none, or was killed while it was made. Nothing when
  /// there is no file at `path`, or one that is not ours.
  static std::optional<std::int64_t> last_step(const std::string& path);
  /// The same of the newest checkpoint that it lists.
  static std::int64_t last_checkpoint(const std::string& path);
  /// What is damaged in a run file of ours so that it cannot be continued; "" when nothing is, or
  /// when the file is missing, cannot be read, or is not of this trireme, as resume() reports.
  /// Reads all of it. Throws StorageError when the system refuses.
  static std::string damage(const std::string& path);
  /// Puts into a run file what the journal beside it still holds, where there is one: what resume()
  /// does as well, for a file that is not resumed. Throws StorageError.
  static void finish_journal(const std::string& path);
  /// What resume() had to drop beside later steps, in sentences.
  [[nodiscard]] const std::vector<std::string>& warnings() const;
  RunFile(RunFile&&) noexcept;
  RunFile& operator=(RunFile&&) noexcept;
  /// Writes what waits; reports a failure on stderr instead of throwing.
  ~RunFile();

  void append(const StepRow& row);
  void append_validation(const ValidationRow& row);
  /// `set` names a group, which is made at its first row; `of` describes the set.
  void append_evaluation(const std::string& set, const std::string& of, const EvaluationRow& row);
  void append_checkpoint(const CheckpointRow& row);
  void append_skipped(const SkippedRow& row);
  void append_noise_scale(const NoiseScaleRow& row);
  void append_rank_spans(std::span<const RankSpanRow> rows);
  void append_samples(std::span<const device::TimeSample> samples);

  /// Attributes of /timings: "flops_per_token", "dropped", … Replaces an earlier value.
  void set_timing_fact(const std::string& name, double value, std::string_view unit);
  /// Calendar time of each rank's anchor, in rank order: seconds since 1970.
  void set_anchors(std::span<const double> seconds);
  /// Attributes of /memory. Replaces an earlier value.
  void set_memory(const std::string& name, std::int64_t bytes);

  /// The rows of /steps and /validation that were flushed or found. Throws StorageError.
  [[nodiscard]] RecordedRows rows() const;
  /// From now on rows go there as well, whenever they were flushed.
  void also(std::unique_ptr<AlsoFiles> files);
  /// Why they do not any more; null: they do, or are not asked for.
  [[nodiscard]] std::exception_ptr also_problem() const;

  /// Writes and flushes what waits.
  void flush();
  /// flush(), then closes. Throws StorageError; nothing may be appended afterwards.
  void close();

 private:
  class Impl;
  explicit RunFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::record
