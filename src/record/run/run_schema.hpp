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
    {"step", "steps", "Counts from 1.", &StepRow::step},
    {"loss", "nat/token", "Mean over the global batch, before the step's update.", &StepRow::loss},
    {"bits_per_byte", "bit/byte",
     "The loss over the bytes of text that the predicted tokens stand for; a special token has "
     "none. "
     "NaN: not known.",
     &StepRow::bits_per_byte},
    {"grad_norm", "1", "Euclidean norm of the whole gradient, before clipping.",
     &StepRow::grad_norm},
    {"learning_rate", "1", "As the step used it.", &StepRow::learning_rate},
    {"tokens", "tokens", "Trained on since the run began, this step included.", &StepRow::tokens},
    {"seconds", "s", "Wall time of the step, without evaluation and checkpoints.",
     &StepRow::seconds},
    {"tokens_per_s", "tokens/s", "All ranks together.", &StepRow::tokens_per_s},
    {"flops_per_s", "FLOP/s", "All ranks together, by the model's FLOP formula.",
     &StepRow::flops_per_s},
    {"exposed_s", "s", "Compute waited for the network, on rank 0.", &StepRow::exposed_s},
    {"allocations", "allocations", "Scratch requests that the pool could not serve.",
     &StepRow::allocations},
};

inline constexpr Column<ValidationRow, std::int64_t, double> validation_columns[] = {
    {"step", "steps", "Steps done when it was measured.", &ValidationRow::step},
    {"loss", "nat/token", "Mean over the validation batches.", &ValidationRow::loss},
    {"bits_per_byte", "bit/byte",
     "The loss over the bytes of text that the predicted tokens stand for; a special token has "
     "none. "
     "NaN: not known.",
     &ValidationRow::bits_per_byte},
};

inline constexpr Column<EvaluationRow, std::int64_t, double> evaluation_columns[] = {
    {"step", "steps", "Steps done when it was measured.", &EvaluationRow::step},
    {"loss", "nat/token", "Mean over every token but the first. NaN: questions.",
     &EvaluationRow::loss},
    {"bits_per_byte", "bit/byte",
     "The loss over the bytes of text that the predicted tokens stand for. NaN: not known.",
     &EvaluationRow::bits_per_byte},
    {"accuracy", "fraction",
     "Of questions whose right choice has the smallest loss. NaN: no questions.",
     &EvaluationRow::accuracy},
    {"accuracy_error", "fraction", "Its standard error.", &EvaluationRow::accuracy_error},
    {"accuracy_per_token", "fraction", "The same, of losses divided by the choice's tokens.",
     &EvaluationRow::accuracy_per_token},
    {"accuracy_per_token_error", "fraction", "Its standard error.",
     &EvaluationRow::accuracy_per_token_error},
    {"accuracy_per_byte", "fraction",
     "The same, of losses divided by the choice's bytes. NaN: not known.",
     &EvaluationRow::accuracy_per_byte},
    {"accuracy_per_byte_error", "fraction", "Its standard error.",
     &EvaluationRow::accuracy_per_byte_error},
};

inline constexpr Column<CheckpointRow, std::int64_t, double> checkpoint_columns[] = {
    {"step", "steps", "Steps done when it was taken.", &CheckpointRow::step},
    {"bytes", "byte", "Files of all ranks.", &CheckpointRow::bytes},
    {"copy_s", "s", "Copying the state before the run went on.", &CheckpointRow::copy_s},
    {"stall_s", "s", "The run was paused for it, the copy included.", &CheckpointRow::stall_s},
    {"write_s", "s", "From the first byte to the last fsync, without waits between steps.",
     &CheckpointRow::write_s},
};

inline constexpr Column<NoiseScaleRow, std::int64_t, double> noise_scale_columns[] = {
    {"step", "steps", "Counts from 1; its gradients were measured.", &NoiseScaleRow::step},
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
    {"tokens", "tokens", "The same in tokens: sequences times their length.",
     &NoiseScaleRow::tokens},
};

inline constexpr Column<RankSpanRow, std::int64_t, double> rank_span_columns[] = {
    {"first_step", "steps", "From this step …", &RankSpanRow::first_step},
    {"last_step", "steps", "… to this one …", &RankSpanRow::last_step},
    {"name", "", "… in spans of this row of names …", &RankSpanRow::name},
    {"index", "", "… with this index, ranks spent:", &RankSpanRow::index},
    {"min_s", "s", "The rank that spent the least.", &RankSpanRow::min_s},
    {"median_s", "s", "The lower median, at most 1/128 too large.", &RankSpanRow::median_s},
    {"max_s", "s", "The rank that spent the most …", &RankSpanRow::max_s},
    {"max_rank", "rank", "… and which it is, the first of several.", &RankSpanRow::max_rank},
};

inline constexpr Column<SkippedRow, std::int64_t, std::string> skipped_columns[] = {
    {"step", "steps", "Its gradient was not finite, and it updated nothing.", &SkippedRow::step},
    {"found", "", "The first element that was not finite, and the rank that found it.",
     &SkippedRow::found},
};

inline constexpr Column<BucketRow, std::int64_t, std::string> bucket_columns[] = {
    {"first_parameter", "", "The first that backward finishes.", &BucketRow::first_parameter},
    {"last_parameter", "", "The last; those between them lie between them in the model.",
     &BucketRow::last_parameter},
    {"elements", "elements", "Padding included.", &BucketRow::elements},
    {"padding", "elements", "Between parameters and at the end.", &BucketRow::padding},
    {"shard_elements", "elements", "Of one rank.", &BucketRow::shard_elements},
};

/// The compound of timing::Sample.
h5::Type sample_type();

/// Appends to /timings/names the names that an older version did not have, and writes what they
/// mean. Throws UserError when the names that are there are not this program's first ones.
void bring_names(const h5::File& file);

/// All groups and datasets of a new file, empty.
void make_datasets(const h5::File& file);

/// The column of /sessions that came with 1.3, and what is known for older rows of it: the last
/// session's deck.
void make_session_decks(const h5::File& file);

/// The columns that came with 1.4, where a file does not have them: NaN in the rows that it has.
void bring_columns(const h5::File& file);

/// After the rows of a set of /evaluation, which is made where it is not there.
void append_evaluation(const h5::File& file,
                       const std::string& set,
                       const std::string& of,
                       const EvaluationRow& row);

/// Into /tokenizer, unless it is there: a run never changes it. "" is not known.
void write_tokenizer(const h5::File& file, const std::string& serialized);

/// "name: value" lines.
std::string lines_of(const NameValues& values);

/// Drops the rows of later steps, and makes the groups that an older version did not have. Returns
/// what else had to be dropped, in sentences.
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
