// SPDX-License-Identifier: Apache-2.0
#include "reduce/engine.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

#include "reduce/engine_impl.hpp"

namespace trireme::reduce {

namespace {

bool overlaps(const ParallelConfig& config, const comm::Communicator& communicator) {
  return communicator.size() > 1 && (config.overlap_gradients || config.overlap_parameters);
}

}  // namespace

Engine::Impl::Impl(const layout::Plan& plan,
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
      leaves_(leaves_per_rank(config, plan.all_ranks()), plan_, gradients_.all(), device),
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

void Engine::Impl::add_round(BucketRun& run) {
  for (auto& rounds : run.reductions) {
    ReductionEvents& events = rounds.emplace_back();
    for (EventPtr* event :
         {&events.ready, &events.start, &events.end, &events.wait_begin, &events.wait_end})
      *event = device_.make_event();
  }
}

void Engine::Impl::add_locations() {
  locations_.push_back(device_.allocate_shared_with_host(
      event_sets * buckets_.size() * sizeof(std::int64_t), "locations of gradients"));
  for (std::size_t event_set = 0; event_set < event_sets; ++event_set)
    std::ranges::fill(locations(locations_.size() - 1, event_set), -1);
}

std::span<std::int64_t> Engine::Impl::locations(std::size_t round, std::size_t event_set) const {
  auto* first = reinterpret_cast<std::int64_t*>(locations_[round].data());
  return {first + event_set * buckets_.size(), buckets_.size()};
}

void Engine::Impl::find_owned(BucketIndex bucket) {
  owned_[at(bucket)] = {bucket, gradients_.own(bucket), parameters_.own(bucket)};
}

Engine::Engine(const layout::Plan& plan,
               DType parameter_dtype,
               const ParallelConfig& config,
               comm::Communicator& communicator,
               device::Device& device,
               device::Stream& compute)
    : impl_(std::make_unique<Impl>(plan, parameter_dtype, config, communicator, device, compute)) {}

Engine::~Engine() = default;

View Engine::gradient(ParameterIndex parameter) const {
  return impl_->gradients_.gradient(parameter);
}
View Engine::parameter(ParameterIndex parameter) const {
  return impl_->parameters_.parameter(parameter);
}
View Engine::bucket_gradients(BucketIndex bucket) const {
  return impl_->gradients_.bucket(bucket);
}
View Engine::bucket_parameters(BucketIndex bucket) const {
  return impl_->parameters_.bucket(bucket);
}

void Engine::begin_step() {
  impl_->begin_step();
}
void Engine::measure_leaves(ops::StreamSum& squares) {
  impl_->measure_leaves(squares);
}
void Engine::next_leaf() {
  impl_->next_leaf();
}
void Engine::next_micro_step() {
  impl_->next_micro_step();
}
void Engine::before_write(ParameterIndex parameter) {
  impl_->before_write(parameter);
}
bool Engine::gradients_share_slots() const {
  return impl_->gradients_.ring().has_value();
}
bool Engine::parameters_share_slots() const {
  return impl_->parameters_.shares_slots();
}
void Engine::mark_ready(ParameterIndex parameter) {
  impl_->mark_ready(parameter);
}
void Engine::finish_reduction() {
  impl_->finish_reduction();
}
std::int64_t Engine::steps_begun() const {
  return impl_->steps_begun_;
}
std::optional<NotFinite> Engine::first_not_finite(std::int64_t step) const {
  return impl_->first_not_finite(step);
}
std::span<const OwnedShard> Engine::owned() const {
  return impl_->owned_;
}
void Engine::wait_for_shard(BucketIndex bucket) {
  impl_->wait_for_shard(bucket);
}
void Engine::mark_updated(BucketIndex bucket) {
  impl_->mark_updated(bucket);
}
void Engine::set_sender(TransferSender* sender, std::span<const BucketIndex> buckets) {
  impl_->transfers_.set_sender(sender, buckets);
}
void Engine::begin_transfer(BucketIndex bucket, Direction direction) {
  impl_->transfers_.begin(bucket, direction);
}
void Engine::wait_for_transfer(BucketIndex bucket, Direction direction) {
  impl_->transfers_.wait(bucket, direction);
}
void Engine::before_use(std::span<const ParameterIndex> parameters) {
  impl_->parameters_.before_use(parameters);
}
void Engine::wait_for_parameters() {
  impl_->parameters_.before_use_of_all();
}
void Engine::publish_parameters() {
  impl_->publish_parameters();
}

StepTimes Engine::times(std::int64_t step) {
  return impl_->times(step);
}
void Engine::hold_collectives(bool held) {
  impl_->queue_.hold(held);
}
std::span<const GatherTimes> Engine::take_last_gathers() {
  return impl_->take_last_gathers();
}
std::int64_t Engine::leaves() const {
  return impl_->leaves_.per_step();
}
const layout::Plan& Engine::plan() const {
  return impl_->plan_;
}
bool Engine::sharded() const {
  return impl_->config_.sharded();
}
bool Engine::cached_shards() const {
  return impl_->config_.cached_shards;
}
DType Engine::parameter_dtype() const {
  return impl_->parameters_.dtype();
}
int Engine::rank() const {
  return impl_->communicator_.rank();
}
std::size_t Engine::gradient_bytes() const {
  return impl_->gradients_.bytes() + impl_->leaves_.bytes();
}
std::size_t Engine::parameter_bytes() const {
  return impl_->parameters_.bytes();
}

}  // namespace trireme::reduce
