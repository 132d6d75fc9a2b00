// SPDX-License-Identifier: Apache-2.0
// What lies where in run.h5 (run_file.hpp): the columns of its tables with their units and
// meanings, and the datasets made from them. A column exists once, as a row of one of the arrays
// below.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "h5/dataset.hpp"
#include "h5/file.hpp"
#include "record/run/columns.hpp"
#include "record/run/run_file.hpp"

namespace trireme::record {

inline constexpr Column<StepRow, std::int64_t, double> step_columns[] = {
    {"step", "steps", "Number of the step, from 1.", &StepRow::step},
    {"loss", "nat/token", "Mean loss over the global batch, before the step's update.",
     &StepRow::loss},
    {"bits_per_byte", "bit/byte",
     "The loss over the bytes of text that the predicted tokens stand for; a special token has "
     "none. "
     "NaN: not known.",
     &StepRow::bits_per_byte},
    {"grad_norm", "1", "Euclidean norm of the whole gradient, before clipping.",
     &StepRow::grad_norm},
    {"learning_rate", "1", "Learning rate of the step.", &StepRow::learning_rate},
    {"tokens", "tokens", "Tokens trained on since the run began, this step included.",
     &StepRow::tokens},
    {"seconds", "s", "Wall time of the step, without evaluation and checkpoints.",
     &StepRow::seconds},
    {"tokens_per_s", "tokens/s", "Tokens per second of all ranks together.",
     &StepRow::tokens_per_s},
    {"flops_per_s", "FLOP/s", "FLOP per second of all ranks together, by the model's FLOP formula.",
     &StepRow::flops_per_s},
    {"exposed_s", "s", "Time that compute waited for the network, on rank 0.", &StepRow::exposed_s},
    {"allocations", "allocations", "Scratch requests that the pool could not serve.",
     &StepRow::allocations},
};

inline constexpr Column<ValidationRow, std::int64_t, double> validation_columns[] = {
    {"step", "steps", "Steps done when the loss was measured.", &ValidationRow::step},
    {"loss", "nat/token", "Mean loss over the validation batches.", &ValidationRow::loss},
    {"bits_per_byte", "bit/byte",
     "The loss over the bytes of text that the predicted tokens stand for; a special token has "
     "none. "
     "NaN: not known.",
     &ValidationRow::bits_per_byte},
};

inline constexpr Column<EvaluationRow, std::int64_t, double> evaluation_columns[] = {
    {"step", "steps", "Steps done when the set was evaluated.", &EvaluationRow::step},
    {"loss", "nat/token", "Mean loss of all tokens but the first. NaN: questions.",
     &EvaluationRow::loss},
    {"bits_per_byte", "bit/byte",
     "The loss over the bytes of text that the predicted tokens stand for. NaN: not known.",
     &EvaluationRow::bits_per_byte},
    {"accuracy", "fraction",
     "Share of questions whose right choice has the smallest loss. NaN: no questions.",
     &EvaluationRow::accuracy},
    {"accuracy_error", "fraction", "Standard error of accuracy.", &EvaluationRow::accuracy_error},
    {"accuracy_per_token", "fraction",
     "Share of questions whose right choice has the smallest loss per token. NaN: no questions.",
     &EvaluationRow::accuracy_per_token},
    {"accuracy_per_token_error", "fraction", "Standard error of accuracy_per_token.",
     &EvaluationRow::accuracy_per_token_error},
    {"accuracy_per_byte", "fraction",
     "Share of questions whose right choice has the smallest loss per byte. NaN: not known.",
     &EvaluationRow::accuracy_per_byte},
    {"accuracy_per_byte_error", "fraction", "Standard error of accuracy_per_byte.",
     &EvaluationRow::accuracy_per_byte_error},
};

inline constexpr Column<CheckpointRow, std::int64_t, double> checkpoint_columns[] = {
    {"step", "steps", "Steps done when the checkpoint was taken.", &CheckpointRow::step},
    {"bytes", "byte", "Size of the files of all ranks.", &CheckpointRow::bytes},
    {"copy_s", "s", "Time to copy the state, while the run was paused.", &CheckpointRow::copy_s},
    {"stall_s", "s", "Time that the run was paused for the checkpoint, copy_s included.",
     &CheckpointRow::stall_s},
    {"write_s", "s", "Time from the first byte to the last fsync, without waits between steps.",
     &CheckpointRow::write_s},
};

inline constexpr Column<NoiseScaleRow, std::int64_t, double> noise_scale_columns[] = {
    {"step", "steps", "Number of the step whose gradients were measured, from 1.",
     &NoiseScaleRow::step},
    {"leaf_norm_squared", "1", "Squared norm of a leaf's mean gradient, mean over the leaves.",
     &NoiseScaleRow::leaf_norm_squared},
    {"norm_squared", "1", "Squared norm of the step's mean gradient, before clipping.",
     &NoiseScaleRow::norm_squared},
    {"gradient_squared", "1",
     "Estimate of the squared norm of the gradient without noise; of one step, so it may be "
     "negative.",
     &NoiseScaleRow::gradient_squared},
    {"trace", "1", "Estimate of the trace of the covariance of one sequence's gradient.",
     &NoiseScaleRow::trace},
    {"smoothed_gradient_squared", "1", "Moving average of gradient_squared.",
     &NoiseScaleRow::smoothed_gradient_squared},
    {"smoothed_trace", "1", "Moving average of trace.", &NoiseScaleRow::smoothed_trace},
    {"sequences", "sequences",
     "The simple noise scale: smoothed_trace over smoothed_gradient_squared. NaN while one of them "
     "is not positive.",
     &NoiseScaleRow::sequences},
    {"tokens", "tokens", "The simple noise scale in tokens: sequences times their length.",
     &NoiseScaleRow::tokens},
};

inline constexpr Column<RankSpanRow, std::int64_t, double> rank_span_columns[] = {
    {"first_step", "steps", "First step of the interval.", &RankSpanRow::first_step},
    {"last_step", "steps", "Last step of the interval.", &RankSpanRow::last_step},
    {"name", "", "Name of the spans: a row of /timings/names.", &RankSpanRow::name},
    {"index", "", "Index of the spans: what that name counts, such as buckets, else 0.",
     &RankSpanRow::index},
    {"min_s", "s", "Time that the rank with the least spent in these spans.", &RankSpanRow::min_s},
    {"median_s", "s",
     "Lower median over the ranks of the time in these spans, at most 1/128 too large.",
     &RankSpanRow::median_s},
    {"max_s", "s", "Time that the rank with the most spent in these spans.", &RankSpanRow::max_s},
    {"max_rank", "rank", "Rank that spent the most time in these spans, the first of several.",
     &RankSpanRow::max_rank},
};

inline constexpr Column<SkippedRow, std::int64_t, std::string> skipped_columns[] = {
    {"step", "steps", "Step that updated nothing, because its gradient was not finite.",
     &SkippedRow::step},
    {"found", "", "The first element that was not finite, and the rank that found it.",
     &SkippedRow::found},
};

inline constexpr Column<BucketRow, std::int64_t, std::string> bucket_columns[] = {
    {"first_parameter", "",
     "The bucket's first parameter, in the order in which backward finishes them.",
     &BucketRow::first_parameter},
    {"last_parameter", "",
     "The bucket's last parameter in the order of backward; the bucket holds all between first and "
     "last.",
     &BucketRow::last_parameter},
    {"elements", "elements", "Elements of the bucket, padding included.", &BucketRow::elements},
    {"padding", "elements", "Elements of the bucket between parameters and at its end.",
     &BucketRow::padding},
    {"shard_elements", "elements", "Elements of the bucket that one rank owns.",
     &BucketRow::shard_elements},
};

/// The compound of device::TimeSample.
h5::Type sample_type();

/// Throws UserError when /timings/names does not hold the span names of this program.
void expect_names(const h5::File& file);

/// All groups and datasets of a new file, empty.
void make_datasets(const h5::File& file);

/// After the rows of a set of /evaluation, which is made where it is not there.
void append_evaluation(const h5::File& file,
                       const std::string& set,
                       const std::string& of,
                       const EvaluationRow& row);

/// Into /tokenizer, unless it is there: a run never changes it. "" is not known.
void write_tokenizer(const h5::File& file, const std::string& serialized);

/// "name: value" lines.
std::string lines_of(const NameValues& values);

/// Drops the rows of later steps. Returns what else had to be dropped, in sentences.
std::vector<std::string> drop_after(const h5::File& file, std::int64_t step);

/// Throws h5::DamagedError when a part that is needed to go on cannot be read.
void read_everything(const h5::File& file);

/// One row of the dataset at `path`.
template <class T>
void append_one(const h5::File& file, const char* path, const T& value) {
  h5::Dataset dataset = h5::Dataset::open(file.get(), path);
  if constexpr (std::is_same_v<T, std::string>)
    dataset.append_strings({&value, 1});
  else
    dataset.append<T>({&value, 1});
}

}  // namespace trireme::record
