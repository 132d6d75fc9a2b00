// SPDX-License-Identifier: Apache-2.0
// Reads the times of a step's events, after the step has ended or the next one has begun.
#include "base/error.hpp"

#include "reduce/engine.hpp"

namespace trireme::reduce {
StepTimes Engine::times(std::int64_t step) {
  const bool finished = num_updated_ == buckets_.size();
  TRIREME_EXPECT((step == steps_begun_ && finished) || step + 1 == steps_begun_,
                 "asked for the times of step {} in step {}, which is {}finished", step,
                 steps_begun_, finished ? "" : "not ");
  StepTimes result;
  const double began = seconds_of(*step_began_[event_set_of(step)]);
  reduction_times_.clear();
  gather_times_.clear();
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const auto bucket = static_cast<BucketIndex>(b);
    for (std::size_t round = 0; round < num_rounds_[event_set_of(step)]; ++round) {
      const ReductionEvents& events = buckets_[b].reductions[event_set_of(step)][round];
      ReductionTimes& times = reduction_times_.emplace_back();
      times.bucket = bucket;
      times.round = static_cast<std::int64_t>(round);
      times.ready = seconds_of(*events.ready);
      times.start = seconds_of(*events.start);
      times.end = seconds_of(*events.end);
      times.wait_begin = seconds_of(*events.wait_begin);
      times.waited = seconds_of(*events.wait_end) - times.wait_begin;
      result.exposed_s += times.waited;
    }
    parameters_.take_times(bucket, step, gather_times_);
  }
  for (const GatherTimes& times : gather_times_)
    result.exposed_s += times.wait_begin >= began ? times.waited : 0;
  transfer_times_.clear();
  transfers_.take_times(step, transfer_times_);
  for (const TransferTimes& times : transfer_times_) result.exposed_s += times.waited;
  result.reductions = reduction_times_;
  result.gathers = gather_times_;
  result.transfers = transfer_times_;
  return result;
}

std::span<const GatherTimes> Engine::take_last_gathers() {
  TRIREME_EXPECT(!parameters_.gathering(), "buckets are still being gathered after step {}",
                 steps_begun_);
  gather_times_.clear();
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    parameters_.take_times(static_cast<BucketIndex>(b), steps_begun_ + 1, gather_times_);
  return gather_times_;
}

}  // namespace trireme::reduce
