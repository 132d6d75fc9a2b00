// SPDX-License-Identifier: Apache-2.0
// The table of all spans that a run measures. To add a span, add a row: the recorder, the run
// file's name table, the end-of-run report and the documentation read this table.
//
// 1. Ids are positions in the table. A file contains its own table (/timings/names), and readers
//    use the dotted name. A run resumes only with the table of its file, so a new row raises the
//    version of run.h5 (record/run/run_identity.cpp).
// 2. The spans with "Within step" in their help are the parts of a step. Some are nested: compute
//    waits for buckets in optim.step, and for parameters in model.train, or the other way round
//    without overlap. A reader who adds them must subtract the inner ones from the outer ones, as
//    the summary at the end of a run does.
// 3. Work of a stream (step, model.train, optim.step, reduce.*, gather.*) is measured by events on
//    it, work of the host by its clock. Both are seconds of the host's steady clock, so the spans
//    of a rank can be compared (recorder.hpp).
#pragma once

#include <cstddef>
#include <cstdint>

namespace trireme::device {

/// Stored in samples as a 16-bit number (TimeSample::name), in the order of the table.
enum class SpanName : std::uint16_t {
  step,
  data_next,
  model_train,
  reduce_ready,
  reduce_bucket,
  reduce_exposed,
  gather_bucket,
  gather_wait,
  optim_step,
  evaluate,
  checkpoint_copy,
  checkpoint_stall,
  checkpoint_write,
  checkpoint_read,
  sample,
  step_sums,
  step_control,
  check_replicas,
  record_collect,
  optim_matrices,
  matrices_travel,
  matrices_wait,
  gather_ready,
};

struct SpanInfo {
  SpanName name;
  const char* dotted;  ///< name in files, reports and plots
  const char* index;   ///< meaning of TimeSample::index; "" if it is always 0
  const char* help;
};

inline constexpr SpanInfo span_names[] = {
    {SpanName::step, "step", "", "One optimizer step, from its first batch to its last update."},
    {SpanName::data_next, "data.next", "", "Within step: fetching one micro-batch."},
    {SpanName::model_train, "model.train", "",
     "Within step: forward and backward of one micro-step."},
    {SpanName::reduce_ready, "reduce.ready", "bucket",
     "From a bucket's last gradient until its reduction started."},
    {SpanName::reduce_bucket, "reduce.bucket", "bucket", "Reduction of one bucket on the network."},
    {SpanName::reduce_exposed, "reduce.exposed", "bucket",
     "Within step: compute waited for this bucket's reduction."},
    {SpanName::gather_bucket, "gather.bucket", "bucket", "Parameter gather of one bucket."},
    {SpanName::gather_wait, "gather.wait", "bucket",
     "Within step: compute waited for this bucket's parameters."},
    {SpanName::optim_step, "optim.step", "", "Within step: gradient norm, clipping and update."},
    {SpanName::evaluate, "evaluate", "", "One evaluation on the validation data."},
    {SpanName::checkpoint_copy, "checkpoint.copy", "",
     "Within checkpoint.stall: copying the state that is written while training continues."},
    {SpanName::checkpoint_stall, "checkpoint.stall", "", "The run was paused for a checkpoint."},
    {SpanName::checkpoint_write, "checkpoint.write", "",
     "From the request of a checkpoint until it is complete; steps continue within it."},
    {SpanName::checkpoint_read, "checkpoint.read", "",
     "Reading the checkpoint from which a run resumes."},
    {SpanName::sample, "sample", "", "Writing one sample text."},
    {SpanName::step_sums, "step.sums", "",
     "Within step: compute waited while ranks added loss and gradient norm."},
    {SpanName::step_control, "step.control", "",
     "Within step: compute waited while ranks agreed on stops and checkpoints."},
    {SpanName::check_replicas, "check.replicas", "", "Comparing the parameters of all ranks."},
    {SpanName::record_collect, "record.collect", "",
     "Between steps: rank 0 collected the measurements of all ranks and wrote them."},
    {SpanName::optim_matrices, "optim.matrices", "",
     "Within optim.step: compute worked on Muon's matrices or waited for them."},
    {SpanName::matrices_travel, "matrices.travel", "bucket",
     "Muon's matrices of one bucket on the network, in either direction."},
    {SpanName::matrices_wait, "matrices.wait", "bucket",
     "Within optim.matrices: compute waited for this bucket's matrices."},
    {SpanName::gather_ready, "gather.ready", "bucket",
     "From a bucket's update, or the last use of its slot, until its gather started."},
};
inline constexpr std::size_t num_span_names = sizeof span_names / sizeof span_names[0];

constexpr bool names_are_in_order() {
  for (std::size_t i = 0; i < num_span_names; ++i)
    if (static_cast<std::size_t>(span_names[i].name) != i)
      return false;
  return true;
}
static_assert(names_are_in_order(), "row i of the table describes SpanName i");

}  // namespace trireme::device
