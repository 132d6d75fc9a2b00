// SPDX-License-Identifier: Apache-2.0
// The tables of a run's record: their columns with units and meanings, their groups in run.h5
// (run_file.hpp) and the kinds of their lines in steps.jsonl (run_log.hpp). A column exists once,
// as a row of one of the arrays below. The first column of a table is its dimension scale.
#pragma once

#include <cstdint>
#include <string>

#include "record/run/columns.hpp"
#include "record/run/rows.hpp"

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
    {"cpu_joules", "J",
     "Energy of the CPUs and the memory of all hosts during the step, as far as their counters "
     "have "
     "advanced: add up a second of steps or more. NaN: not known.",
     &StepRow::cpu_joules},
    {"gpu_joules", "J",
     "Energy of the GPUs of all ranks during the step; NVML's counter advances every 0.1 s. NaN: "
     "not known.",
     &StepRow::gpu_joules},
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
    {"accuracy_per_character", "fraction",
     "Share of questions whose right choice has the smallest loss per character. NaN: not known.",
     &EvaluationRow::accuracy_per_character},
    {"accuracy_per_character_error", "fraction", "Standard error of accuracy_per_character.",
     &EvaluationRow::accuracy_per_character_error},
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

inline constexpr Column<NormRow, std::int64_t, double> norm_columns[] = {
    {"step", "steps", "Number of the measured step, from 1.", &NormRow::step},
    {"layer", "layer", "0: the embeddings; then the blocks in order; the last: what follows them.",
     &NormRow::layer},
    {"gradient", "1", "Norm of the layer's gradient, before clipping.", &NormRow::gradient},
    {"weight", "1", "Norm of the layer's weights after the step.", &NormRow::weight},
    {"update", "1", "Norm of what the step added to the layer's weights.", &NormRow::update},
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

inline constexpr Column<RankEnergyRow, std::int64_t, double> rank_energy_columns[] = {
    {"first_step", "steps", "First step of the interval.", &RankEnergyRow::first_step},
    {"last_step", "steps", "Last step of the interval.", &RankEnergyRow::last_step},
    {"rank", "rank", "Rank that counted.", &RankEnergyRow::rank},
    {"cpu_joules", "J",
     "Energy of CPUs and memory of the rank's host in the steps of the interval, counted by the "
     "host's first rank. NaN: another rank counts it, or it is not known.",
     &RankEnergyRow::cpu_joules},
    {"gpu_joules", "J", "Energy of the rank's GPU in these steps. NaN: not known.",
     &RankEnergyRow::gpu_joules},
};

inline constexpr Column<SkippedRow, std::int64_t, std::string> skipped_columns[] = {
    {"step", "steps", "Step that updated nothing, because its gradient was not finite.",
     &SkippedRow::step},
    {"found", "", "The first element that was not finite, and the rank that found it.",
     &SkippedRow::found},
};

inline constexpr Column<BucketRow, std::int64_t, std::string> bucket_columns[] = {
    {"first_step", "steps",
     "First step with these buckets; they are in use up to the next such step.",
     &BucketRow::first_step},
    {"bucket", "bucket", "Number of the bucket, from 0.", &BucketRow::bucket},
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

inline constexpr Column<AnchorRow, std::int64_t, double> anchor_columns[] = {
    {"first_step", "steps", "First step of a session; its anchors hold up to the next such step.",
     &AnchorRow::first_step},
    {"rank", "rank", "Rank whose clock the anchor belongs to.", &AnchorRow::rank},
    {"calendar_s", "seconds since 1970-01-01 00:00:00",
     "Calendar time at which begin_s of the rank's samples is 0.", &AnchorRow::calendar_s},
};

inline constexpr Column<SessionRow, std::int64_t, std::string> session_columns[] = {
    {"first_step", "steps", "The first step of the session.", &SessionRow::first_step},
    {"date_and_time", "", "When the session began, UTC.", &SessionRow::date_and_time},
    {"ranks", "ranks", "Number of ranks of the session.", &SessionRow::ranks},
    {"machine", "", "Hosts of the ranks, in rank order.", &SessionRow::machine},
    {"facts", "", "Versions and settings of the session, one per line.", &SessionRow::facts},
    {"deck", "", "The resolved deck that the session's steps were made with.", &SessionRow::deck},
};

/// The kinds of lines that are not rows of the tables below (run_log.hpp).
inline constexpr const char* tokenizer_kind = "tokenizer";
inline constexpr const char* timing_fact_kind = "timing_fact";
inline constexpr const char* memory_kind = "memory";

/// Elements that a dataset grows by on disk: 512 bytes to 128 KiB per column.
inline constexpr std::int64_t chunk_rows = 1024, chunk_samples = 4096, chunk_few = 64;

/// The table of a type of rows: the kind of its lines, its group, and the member that a rewind
/// compares with its step. Rows of /evaluation are in one group per set.
template <class Row>
struct Table;

template <auto& Columns, auto Key, std::int64_t Chunk = chunk_few>
struct TableOf {
  static constexpr auto& columns = Columns;
  static constexpr auto key = Key;
  static constexpr std::int64_t chunk = Chunk;
};

template <>
struct Table<StepRow> : TableOf<step_columns, &StepRow::step, chunk_rows> {
  static constexpr const char *kind = "step", *group = "steps";
};
template <>
struct Table<ValidationRow> : TableOf<validation_columns, &ValidationRow::step> {
  static constexpr const char *kind = "validation", *group = "validation";
};
template <>
struct Table<EvaluationRow> : TableOf<evaluation_columns, &EvaluationRow::step> {
  static constexpr const char *kind = "evaluation", *group = "evaluation";
};
template <>
struct Table<CheckpointRow> : TableOf<checkpoint_columns, &CheckpointRow::step> {
  static constexpr const char *kind = "checkpoint", *group = "checkpoints";
};
template <>
struct Table<NormRow> : TableOf<norm_columns, &NormRow::step, chunk_rows> {
  static constexpr const char *kind = "norms", *group = "norms";
};
template <>
struct Table<SkippedRow> : TableOf<skipped_columns, &SkippedRow::step> {
  static constexpr const char *kind = "skipped", *group = "skipped";
};
template <>
struct Table<NoiseScaleRow> : TableOf<noise_scale_columns, &NoiseScaleRow::step> {
  static constexpr const char *kind = "noise_scale", *group = "noise_scale";
};
template <>
struct Table<RankSpanRow> : TableOf<rank_span_columns, &RankSpanRow::last_step, chunk_rows> {
  static constexpr const char *kind = "rank_spans", *group = "timings/ranks";
};
template <>
struct Table<RankEnergyRow> : TableOf<rank_energy_columns, &RankEnergyRow::last_step, chunk_rows> {
  static constexpr const char *kind = "rank_energy", *group = "energy";
};
template <>
struct Table<BucketRow> : TableOf<bucket_columns, &BucketRow::first_step> {
  static constexpr const char *kind = "bucket", *group = "buckets";
};
template <>
struct Table<AnchorRow> : TableOf<anchor_columns, &AnchorRow::first_step> {
  static constexpr const char *kind = "anchor", *group = "timings/anchors";
};
template <>
struct Table<SessionRow> : TableOf<session_columns, &SessionRow::first_step> {
  static constexpr const char *kind = "session", *group = "sessions";
};

}  // namespace trireme::record
