// SPDX-License-Identifier: Apache-2.0
#include "reduce/engine.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace trireme::reduce {

Engine::Engine(const layout::Plan& plan,
               DType parameter_dtype,
               const ParallelConfig& config,
               comm::Communicator& communicator,
               device::Device& device,
               device::Stream& compute,
               comm::World* world)
    : plan_(plan),
      config_(config),
      communicator_(communicator),
      device_(device),
      compute_(compute),
      // The queue may hold a reduction, a gather and two transfers of each bucket.
      queue_(device,
             communicator.size() > 1 && (config.overlap_gradients || config.overlap_parameters),
             4 * plan.buckets().size()),
      parameters_(plan_, parameter_dtype, config_, communicator, device, compute, queue_),
      gradients_(plan_, config_, communicator, device, world),
      leaves_(most_leaves_of_a_rank(config, plan.all_ranks()),
              plan_,
              gradients_.all(),
              device,
              gradients_.compression()),
      transfers_(device, compute, queue_, config.overlap_parameters),
      owned_(plan.buckets().size()),
      buckets_(plan.buckets().size()),
      slot_buckets_(gradients_.ring() ? gradients_.ring()->num_slots() : 0),
      reported_(plan.parameters().size()) {
  TRIREME_EXPECT(plan_.ranks() == communicator_.size(),
                 "a plan for {} ranks on a communicator of {}", plan_.ranks(),
                 communicator_.size());
  TRIREME_EXPECT(
      config_.reduction != comm::Reduction::tree || config_.gradient_dtype == GradientDType::fp32,
      "the partial sums of a tree are fp32, not {}", word(config_.gradient_dtype));
  TRIREME_EXPECT(!layout::shards_gradients(config_.shard) ||
                     (config_.can_shard_gradients() && config_.reduces_micro_steps()),
                 "shard: {} reduces every micro-step, here with reduction: {} and reduce_every: {}",
                 word(config_.shard), word(config_.reduction), word(config_.reduce_every));
  for (EventPtr& event : step_began_) event = device_.make_event();
  add_locations();
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    add_round(buckets_[b]);
    find_owned(static_cast<BucketIndex>(b));
  }
}

void Engine::add_round(BucketRun& run) {
  for (auto& rounds : run.reductions) rounds.emplace_back().make(device_);
}

void Engine::add_locations() {
  locations_.push_back(device_.allocate_shared_with_host(
      event_sets * buckets_.size() * sizeof(std::int64_t), "locations of gradients"));
  for (std::size_t event_set = 0; event_set < event_sets; ++event_set)
    std::ranges::fill(locations(locations_.size() - 1, event_set), -1);
}

std::span<std::int64_t> Engine::locations(std::size_t round, std::size_t event_set) const {
  auto* first = reinterpret_cast<std::int64_t*>(locations_[round].data());
  return {first + event_set * buckets_.size(), buckets_.size()};
}

void Engine::find_owned(BucketIndex bucket) {
  owned_[at(bucket)] = {bucket, gradients_.own(bucket), parameters_.own(bucket)};
}

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
      const BucketEvents& events = buckets_[b].reductions[event_set_of(step)][round];
      reduction_times_.push_back({events.times(bucket), static_cast<std::int64_t>(round)});
      result.exposed_s += reduction_times_.back().waited;
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
