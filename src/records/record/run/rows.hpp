// SPDX-License-Identifier: Apache-2.0
// The rows of a run's record, as the trainer makes them. Units and meanings of their members are in
// run_schema.hpp, where each member is a column.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "record/run/name_values.hpp"

namespace trireme::record {

/// One row of /steps.
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
  double cpu_joules = std::numeric_limits<double>::quiet_NaN();  ///< NaN: not known
  double gpu_joules = std::numeric_limits<double>::quiet_NaN();
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
  double accuracy_per_character = unknown, accuracy_per_character_error = unknown;
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

/// One row of /norms.
struct NormRow {
  std::int64_t step = 0;
  std::int64_t layer = 0;  ///< layout::Parameter::group
  double gradient = 0, weight = 0, update = 0;
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

/// One row of /energy: what one rank counted in some steps together; NaN: it counts none.
struct RankEnergyRow {
  std::int64_t first_step = 0, last_step = 0, rank = 0;
  double cpu_joules = 0;  ///< of the rank's host: one of its ranks counts it
  double gpu_joules = 0;
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
  std::int64_t first_step = 0, bucket = 0;      ///< filled in by RunRecord
};

/// One row of /timings/anchors: the calendar time of a rank's anchor in one start.
struct AnchorRow {
  std::int64_t first_step = 0, rank = 0;
  double calendar_s = 0;  ///< since 1970
};

/// One row of /sessions: a start or a resumption.
struct SessionRow {
  std::string date_and_time;
  std::int64_t first_step = 0, ranks = 0;
  std::string machine, facts, deck;
};

/// What a run states about itself at each start.
struct RunHeader {
  NameValues facts;                ///< root attributes
  NameValues deck;                 ///< dotted key, value as in YAML
  std::vector<std::string> hosts;  ///< of each rank, in rank order
  std::vector<BucketRow> buckets;  ///< in bucket order
  std::string tokenizer = {};      ///< text::Tokenizer::serialized(); empty: not known
  std::vector<std::pair<std::string, std::int64_t>> counts =
      {};  ///< root attributes that are numbers
};

}  // namespace trireme::record
