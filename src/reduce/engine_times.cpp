// SPDX-License-Identifier: Apache-2.0
// Times of the events, read when a step is over or the next one has begun.
#include "base/error.hpp"

#include "reduce/engine_impl.hpp"

namespace trireme::reduce {
StepTimes Engine::Impl::times(std::int64_t step) {
  const bool finished = num_updated_ == buckets_.size();
  TRIREME_EXPECT((step == steps_begun_ && finished) || step + 1 == steps_begun_,
                 "asked for the times of step {} in step {}, which is {}finished", step,
                 steps_begun_, finished ? "" : "not ");
  StepTimes result;
  const double began = seconds_of(*step_began_[turn_of(step)]);
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    BucketTimes& times = times_[b];
    times = {};
    const std::size_t rounds = num_rounds_[turn_of(step)];
    const auto& all = buckets_[b].reductions[turn_of(step)];
    const ReductionEvents& reduction = all[rounds - 1];
    times.ready = seconds_of(*reduction.ready);
    times.start = seconds_of(*reduction.start);
    times.end = seconds_of(*reduction.end);
    times.wait_begin = seconds_of(*reduction.wait_begin);
    times.waited = seconds_of(*reduction.wait_end) - times.wait_begin;
    for (std::size_t round = 0; round + 1 < rounds; ++round)
      times.waited += seconds_of(*all[round].wait_end) - seconds_of(*all[round].wait_begin);
    result.exposed_s += times.waited;
    result.exposed_s += parameters_.take_times(static_cast<BucketIndex>(b), step, began, times);
  }
  result.buckets = times_;
  return result;
}

std::span<const BucketTimes> Engine::Impl::take_last_gathers() {
  TRIREME_EXPECT(!parameters_.gathering(), "buckets are still being gathered after step {}",
                 steps_begun_);
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    times_[b] = {};
    parameters_.take_times(static_cast<BucketIndex>(b), steps_begun_ + 1, 0, times_[b]);
  }
  return times_;
}

}  // namespace trireme::reduce
