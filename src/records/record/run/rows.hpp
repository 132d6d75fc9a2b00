// SPDX-License-Identifier: Apache-2.0
// The tables of a run's record: their rows, as the trainer makes them, the groups of their columns
// in run.h5 (run_file.hpp) and the kinds of their lines in steps.jsonl (run_log.hpp). A column
// exists once: columns() gives its name, the member, its unit and its meaning. The first column of
// a table is its dimension scale.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace trireme::record {

inline constexpr double not_known = std::numeric_limits<double>::quiet_NaN();

/// Chunk sizes of datasets in elements: 512 bytes to 8 KiB per column.
inline constexpr std::int64_t chunk_rows = 1024, chunk_few = 64;

/// The kind of a table's lines, and its group.
struct TableInfo {
  const char *kind, *group;
  std::int64_t chunk = chunk_few;
};

inline constexpr const char* bits_per_byte_help =
    "The loss over the bytes of text that the predicted tokens stand for; a special token has "
    "none. NaN: not known.";

struct StepRow {
  std::int64_t step = 0;
  double loss = 0, bits_per_byte = not_known, grad_norm = 0, learning_rate = 0;
  std::int64_t tokens = 0;
  double seconds = 0, tokens_per_s = 0, flops_per_s = 0, exposed_s = 0;
  std::int64_t allocations = 0;
  double cpu_joules = not_known, gpu_joules = not_known;

  static constexpr TableInfo table{"step", "steps", chunk_rows};
  static void columns(auto& r, auto&& v) {
    v("step", r.step, "steps", "Number of the step, from 1.");
    v("loss", r.loss, "nat/token", "Mean loss over the global batch, before the step's update.");
    v("bits_per_byte", r.bits_per_byte, "bit/byte", bits_per_byte_help);
    v("grad_norm", r.grad_norm, "1", "Euclidean norm of the whole gradient, before clipping.");
    v("learning_rate", r.learning_rate, "1", "Learning rate of the step.");
    v("tokens", r.tokens, "tokens", "Tokens trained on since the run began, this step included.");
    v("seconds", r.seconds, "s", "Wall time of the step, without evaluation and checkpoints.");
    v("tokens_per_s", r.tokens_per_s, "tokens/s", "Tokens per second of all ranks together.");
    v("flops_per_s", r.flops_per_s, "FLOP/s",
      "FLOP per second of all ranks together, by the model's FLOP formula.");
    v("exposed_s", r.exposed_s, "s", "Time that compute waited for the network, on rank 0.");
    v("allocations", r.allocations, "allocations",
      "Scratch requests that the pool could not serve.");
    v("cpu_joules", r.cpu_joules, "J",
      "Energy of the CPUs and the memory of all hosts during the step, as far as their counters "
      "have advanced: add up a second of steps or more. NaN: not known.");
    v("gpu_joules", r.gpu_joules, "J",
      "Energy of the GPUs of all ranks during the step; NVML's counter advances every 0.1 s. "
      "NaN: not known.");
  }
};

struct ValidationRow {
  std::int64_t step = 0;
  double loss = 0, bits_per_byte = not_known;

  static constexpr TableInfo table{"validation", "validation"};
  static void columns(auto& r, auto&& v) {
    v("step", r.step, "steps", "Steps done when the loss was measured.");
    v("loss", r.loss, "nat/token", "Mean loss over the validation batches.");
    v("bits_per_byte", r.bits_per_byte, "bit/byte", bits_per_byte_help);
  }
};

/// Values that the set does not measure are NaN. The columns of a set are in a group of its name.
struct EvaluationRow {
  std::int64_t step = 0;
  double loss = not_known, bits_per_byte = not_known;
  double accuracy = not_known, accuracy_error = not_known;
  double accuracy_per_token = not_known, accuracy_per_token_error = not_known;
  double accuracy_per_character = not_known, accuracy_per_character_error = not_known;

  static constexpr TableInfo table{"evaluation", "evaluation"};
  static void columns(auto& r, auto&& v) {
    v("step", r.step, "steps", "Steps done when the set was evaluated.");
    v("loss", r.loss, "nat/token", "Mean loss of all tokens but the first. NaN: questions.");
    v("bits_per_byte", r.bits_per_byte, "bit/byte",
      "The loss over the bytes of text that the predicted tokens stand for. NaN: not known.");
    v("accuracy", r.accuracy, "fraction",
      "Share of questions whose right choice has the smallest loss. NaN: no questions.");
    v("accuracy_error", r.accuracy_error, "fraction", "Standard error of accuracy.");
    v("accuracy_per_token", r.accuracy_per_token, "fraction",
      "Share of questions whose right choice has the smallest loss per token. NaN: no questions.");
    v("accuracy_per_token_error", r.accuracy_per_token_error, "fraction",
      "Standard error of accuracy_per_token.");
    v("accuracy_per_character", r.accuracy_per_character, "fraction",
      "Share of questions whose right choice has the smallest loss per character. NaN: not known.");
    v("accuracy_per_character_error", r.accuracy_per_character_error, "fraction",
      "Standard error of accuracy_per_character.");
  }
};

/// Written when the checkpoint is complete. copy_s is 0 if the state was not copied.
struct CheckpointRow {
  std::int64_t step = 0, bytes = 0;
  double copy_s = 0, stall_s = 0, write_s = 0;

  static constexpr TableInfo table{"checkpoint", "checkpoints"};
  static void columns(auto& r, auto&& v) {
    v("step", r.step, "steps", "Steps done when the checkpoint was taken.");
    v("bytes", r.bytes, "byte", "Size of the files of all ranks.");
    v("copy_s", r.copy_s, "s", "Time to copy the state, while the run was paused.");
    v("stall_s", r.stall_s, "s",
      "Time that the run was paused for the checkpoint, copy_s included.");
    v("write_s", r.write_s, "s",
      "Time from the first byte to the last fsync, without waits between steps.");
  }
};

/// Gradient noise scale of one step (train/noise_scale.hpp). Squared norms are of mean gradients;
/// traces are of the covariance of a single sequence's gradient.
struct NoiseScaleRow {
  std::int64_t step = 0;
  double leaf_norm_squared = 0, norm_squared = 0;
  double gradient_squared = 0, trace = 0;
  double smoothed_gradient_squared = 0, smoothed_trace = 0;
  double sequences = 0, tokens = 0;

  static constexpr TableInfo table{"noise_scale", "noise_scale"};
  static void columns(auto& r, auto&& v) {
    v("step", r.step, "steps", "Number of the step whose gradients were measured, from 1.");
    v("leaf_norm_squared", r.leaf_norm_squared, "1",
      "Squared norm of a leaf's mean gradient, mean over the leaves.");
    v("norm_squared", r.norm_squared, "1",
      "Squared norm of the step's mean gradient, before clipping.");
    v("gradient_squared", r.gradient_squared, "1",
      "Estimate of the squared norm of the gradient without noise; of one step, so it may be "
      "negative.");
    v("trace", r.trace, "1", "Estimate of the trace of the covariance of one sequence's gradient.");
    v("smoothed_gradient_squared", r.smoothed_gradient_squared, "1",
      "Moving average of gradient_squared.");
    v("smoothed_trace", r.smoothed_trace, "1", "Moving average of trace.");
    v("sequences", r.sequences, "sequences",
      "The simple noise scale: smoothed_trace over smoothed_gradient_squared. NaN while one "
      "of them is not positive.");
    v("tokens", r.tokens, "tokens",
      "The simple noise scale in tokens: sequences times their length.");
  }
};

/// `layer` is layout::Parameter::group.
struct NormRow {
  std::int64_t step = 0, layer = 0;
  double gradient = 0, weight = 0, update = 0;

  static constexpr TableInfo table{"norms", "norms", chunk_rows};
  static void columns(auto& r, auto&& v) {
    v("step", r.step, "steps", "Number of the measured step, from 1.");
    v("layer", r.layer, "layer",
      "0: the embeddings; then the blocks in order; the last: what follows them.");
    v("gradient", r.gradient, "1", "Norm of the layer's gradient, before clipping.");
    v("weight", r.weight, "1", "Norm of the layer's weights after the step.");
    v("update", r.update, "1", "Norm of what the step added to the layer's weights.");
  }
};

/// Distribution over the ranks of the seconds that each rank spent in one kind of span, summed over
/// several steps.
struct RankSpanRow {
  std::int64_t first_step = 0, last_step = 0;
  std::int64_t name = 0, index = 0;  ///< as of device::TimeSample
  double min_s = 0, median_s = 0, max_s = 0;
  std::int64_t max_rank = 0;

  static constexpr TableInfo table{"rank_spans", "timings/ranks", chunk_rows};
  static void columns(auto& r, auto&& v) {
    v("first_step", r.first_step, "steps", "First step of the interval.");
    v("last_step", r.last_step, "steps", "Last step of the interval.");
    v("name", r.name, "", "Name of the spans: a row of /timings/names.");
    v("index", r.index, "", "Index of the spans: what that name counts, such as buckets, else 0.");
    v("min_s", r.min_s, "s", "Time that the rank with the least spent in these spans.");
    v("median_s", r.median_s, "s", "Lower median over the ranks of the time in these spans.");
    v("max_s", r.max_s, "s", "Time that the rank with the most spent in these spans.");
    v("max_rank", r.max_rank, "rank",
      "Rank that spent the most time in these spans, the first of several.");
  }
};

/// Energy that one rank measured, summed over several steps.
struct RankEnergyRow {
  std::int64_t first_step = 0, last_step = 0, rank = 0;
  double cpu_joules = 0, gpu_joules = 0;

  static constexpr TableInfo table{"rank_energy", "energy", chunk_rows};
  static void columns(auto& r, auto&& v) {
    v("first_step", r.first_step, "steps", "First step of the interval.");
    v("last_step", r.last_step, "steps", "Last step of the interval.");
    v("rank", r.rank, "rank", "Rank that counted.");
    v("cpu_joules", r.cpu_joules, "J",
      "Energy of CPUs and memory of the rank's host in the steps of the interval, counted by the "
      "host's first rank. NaN: another rank counts it, or it is not known.");
    v("gpu_joules", r.gpu_joules, "J", "Energy of the rank's GPU in these steps. NaN: not known.");
  }
};

struct SkippedRow {
  std::int64_t step = 0;
  std::string found;

  static constexpr TableInfo table{"skipped", "skipped"};
  static void columns(auto& r, auto&& v) {
    v("step", r.step, "steps", "Step that updated nothing, because its gradient was not finite.");
    v("found", r.found, "", "The first element that was not finite, and the rank that found it.");
  }
};

/// The deck determines which parameters share a bucket, and the number of ranks determines padding
/// and shards, so all of it may change when a run resumes.
struct BucketRow {
  std::string first_parameter, last_parameter;
  std::int64_t elements = 0, padding = 0, shard_elements = 0;
  std::int64_t first_step = 0, bucket = 0;  ///< filled in by RunRecord

  static constexpr TableInfo table{"bucket", "buckets"};
  static void columns(auto& r, auto&& v) {
    v("first_step", r.first_step, "steps",
      "First step with these buckets; they are in use up to the next such step.");
    v("bucket", r.bucket, "bucket", "Number of the bucket, from 0.");
    v("first_parameter", r.first_parameter, "",
      "The bucket's first parameter, in the order in which backward finishes them.");
    v("last_parameter", r.last_parameter, "",
      "The bucket's last parameter in the order of backward; the bucket holds all between "
      "first and last.");
    v("elements", r.elements, "elements", "Elements of the bucket, padding included.");
    v("padding", r.padding, "elements",
      "Elements of the bucket between parameters and at its end.");
    v("shard_elements", r.shard_elements, "elements", "Elements of the bucket that one rank owns.");
  }
};

}  // namespace trireme::record
