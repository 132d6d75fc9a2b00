// SPDX-License-Identifier: Apache-2.0
// RUN_DIR/run.h5: what a run was, did and learned. Rank 0 alone opens and writes it.
//
//   /            attributes filetype "trireme-run", version [1, 3], date_and_time, machine, and the
//                facts of RunHeader (software, software_version, git_sha1, compiler, …)
//   /deck        one string attribute per key of the newest session's resolved deck:
//                "optimizer.learning_rate"
//   /sessions    one row per start or resumption: date_and_time, first_step, ranks, machine, facts,
//                and the deck that its steps were made with (since 1.3)
//   /steps       one dataset per column of StepRow
//   /buckets     one dataset per column of BucketRow, a row per bucket and start (since 1.2): what
//                the `index` of samples named reduce.… and gather.… counts
//   /validation  step, loss
//   /checkpoints one dataset per column of CheckpointRow (since 1.1)
//   /skipped     one dataset per column of SkippedRow (since 1.3): steps that updated nothing
//   /timings     samples (rows of timing::Sample, of some ranks and steps), ranks (rows of
//                RankSpanRow, over all ranks, since 1.3), names (row i names id i), anchors;
//                attributes dropped, flops_per_token, …
//   /memory      one integer attribute per name, bytes
//   /blocks      hashes of the rows of /steps, /validation, /checkpoints and samples
//                (row_hashes.hpp; since 1.3)
//
// Every dataset is 1-D and extendible and has the attributes `unit` and `help`.
//
// 1. Rows wait in memory until `flush_rows` of them or `flush_seconds` have passed; then they are
// appended and the file is flushed. A process that is killed loses what waited, and no more. So
// does one whose disk is full: room is taken before anything is written (h5/space.hpp).
// 2. create() never overwrites; resume() drops the rows of steps after the one resumed from.
// 3. After a StorageError the object is good for destruction only.
// 4. One thread uses a RunFile.
// 5. The file's name is on the disk once it is open; its rows are when somebody syncs it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "timing/recorder.hpp"

#include "record/name_values.hpp"

namespace trireme::record {

/// One row of /steps; the columns' units and meanings stand in run_schema.hpp, beside their names.
struct StepRow {
  std::int64_t step = 0;  ///< counts from 1
  double loss = 0;        ///< mean over the global batch, before the step's update
  double grad_norm = 0;   ///< before clipping
  double learning_rate = 0;
  std::int64_t tokens = 0;  ///< trained on since the run began, this step included
  double seconds = 0;       ///< wall time of the step, without evaluation and checkpoints
  double tokens_per_s = 0;
  double flops_per_s = 0;        ///< of all ranks, by the FLOP formula of the model
  double exposed_s = 0;          ///< compute waited for the network, on rank 0
  std::int64_t allocations = 0;  ///< scratch memory requests that the pool could not serve
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
  double stall_s = 0;      ///< the run stood still, the copy included
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

struct RunHeader {
  NameValues facts;                ///< root attributes
  NameValues deck;                 ///< dotted key, value
  std::vector<std::string> hosts;  ///< of each rank, in rank order
  std::vector<BucketRow> buckets;  ///< in bucket order
};

struct RunFileOptions {
  std::size_t flush_rows = 16;
  double flush_seconds = 2.0;
  std::function<double()> clock = timing::steady_seconds;
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
  /// What is damaged in a run file of ours so that it cannot be continued; "" when nothing is, or
  /// when the file is missing, cannot be read, or is not of this trireme, which resume() tells.
  /// Reads all of it. Throws StorageError when the system refuses.
  static std::string damage(const std::string& path);
  /// Puts into a run file what the journal beside it still holds, where there is one: what resume()
  /// does as well, for a file that nobody resumes. Throws StorageError.
  static void finish_journal(const std::string& path);
  /// What resume() had to drop beside later steps, in sentences.
  [[nodiscard]] const std::vector<std::string>& warnings() const;
  RunFile(RunFile&&) noexcept;
  RunFile& operator=(RunFile&&) noexcept;
  /// Writes what waits; reports a failure on stderr instead of throwing.
  ~RunFile();

  void append(const StepRow& row);
  void append_validation(std::int64_t step, double loss);
  void append_checkpoint(const CheckpointRow& row);
  void append_skipped(const SkippedRow& row);
  void append_rank_spans(std::span<const RankSpanRow> rows);
  void append_samples(std::span<const timing::Sample> samples);

  /// Attributes of /timings: "flops_per_token", "dropped", … Replaces an earlier value.
  void set_timing_fact(const std::string& name, double value, std::string_view unit);
  /// Calendar time of each rank's anchor, in rank order: seconds since 1970.
  void set_anchors(std::span<const double> seconds);
  /// Attributes of /memory. Replaces an earlier value.
  void set_memory(const std::string& name, std::int64_t bytes);

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
