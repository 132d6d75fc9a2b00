// SPDX-License-Identifier: Apache-2.0
#include "reduce/engine.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace trireme::reduce {

namespace {

bool overlaps(const ParallelConfig& config, const comm::Communicator& communicator) {
  return communicator.size() > 1 && (config.overlap_gradients || config.overlap_parameters);
}

}  // namespace

Engine::Engine(const layout::Plan& plan,
               DType parameter_dtype,
               const ParallelConfig& config,
               comm::Communicator& communicator,
               device::Device& device,
               device::Stream& compute)
    : plan_(plan),
      config_(config),
      communicator_(communicator),
      device_(device),
      compute_(compute),
      // The queue may hold a reduction, a gather and two transfers of each bucket.
      queue_(device, overlaps(config, communicator), 4 * plan.buckets().size()),
      parameters_(plan_, parameter_dtype, config_, communicator, device, compute, queue_),
      gradients_(plan_, config_, communicator, device),
      leaves_(most_leaves_of_a_rank(config, plan.all_ranks()), plan_, gradients_.all(), device),
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
  for (auto& rounds : run.reductions) {
    ReductionEvents& events = rounds.emplace_back();
    for (EventPtr* event :
         {&events.ready, &events.start, &events.end, &events.wait_begin, &events.wait_end})
      *event = device_.make_event();
  }
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

}  // namespace trireme::reduce
