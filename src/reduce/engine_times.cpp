// SPDX-License-Identifier: Apache-2.0
// What the events say, read when a step is over.
#include "base/error.hpp"

#include "reduce/engine_impl.hpp"

namespace trireme::reduce {
namespace {

double seconds_of(const device::Event& event) {
  if (!event.reached())
    event.wait();
  return event.seconds();
}

void take_times(GatherEvents& gather, BucketTimes& times) {
  times.gather_start = seconds_of(*gather.start);
  times.gather_end = seconds_of(*gather.end);
  times.gather_wait_begin = seconds_of(*gather.wait_begin);
  times.gather_waited = seconds_of(*gather.wait_end) - times.gather_wait_begin;
  gather.counts = false;
}

}  // namespace

// Compute has waited for everything that is read here, so on an inline compute stream nothing
// blocks.
void Engine::Impl::collect_times() {
  exposed_seconds_ = 0;
  const double began = seconds_of(*step_began_);
  const std::size_t waited_for = config_.overlap_parameters ? step_parity_ ^ 1U : step_parity_;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    BucketTimes& times = times_[b];
    times = {};
    const ReductionEvents& reduction = buckets_[b].reduction;
    times.ready = seconds_of(*reduction.ready);
    times.start = seconds_of(*reduction.start);
    times.end = seconds_of(*reduction.end);
    times.wait_begin = seconds_of(*reduction.wait_begin);
    times.waited = seconds_of(*reduction.wait_end) - times.wait_begin;
    exposed_seconds_ += times.waited;
    if (GatherEvents& gather = buckets_[b].gathers[waited_for]; gather.counts) {
      take_times(gather, times);
      if (times.gather_wait_begin >= began)
        exposed_seconds_ += times.gather_waited;
    }
  }
}

std::span<const BucketTimes> Engine::Impl::take_last_gathers() {
  TRIREME_EXPECT(num_gathering_ == 0, "{} buckets are still being gathered", num_gathering_);
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    BucketRun& run = buckets_[b];
    times_[b] = {};
    if (GatherEvents& gather = run.gathers[run.last_gather]; gather.counts)
      take_times(gather, times_[b]);
  }
  return times_;
}

}  // namespace trireme::reduce
