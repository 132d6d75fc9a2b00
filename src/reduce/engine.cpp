// SPDX-License-Identifier: Apache-2.0
#include "reduce/engine.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

#include "reduce/engine_impl.hpp"

namespace trireme::reduce {

Engine::Impl::Impl(const layout::Plan& plan,
                   DType parameter_dtype,
                   bool sharded,
                   const ParallelConfig& config,
                   comm::Communicator& communicator,
                   device::Device& device,
                   device::Stream& compute)
    : plan_(plan),
      parameter_dtype_(parameter_dtype),
      sharded_(sharded),
      config_(config),
      communicator_(communicator),
      device_(device),
      compute_(compute),
      rounds_(config.gradient_dtype != GradientDType::fp32 && communicator.size() > 1) {
  TRIREME_EXPECT(plan_.ranks() == communicator_.size(),
                 "a plan for {} ranks on a communicator of {}", plan_.ranks(),
                 communicator_.size());
  for (EventPtr& event : step_began_) event = device_.make_event();
  held_.reserve(2 * plan_.buckets().size());
  TRIREME_EXPECT(
      config_.reduction != comm::Reduction::tree || config_.gradient_dtype == GradientDType::fp32,
      "the partial sums of a tree are fp32, not {}", word(config_.gradient_dtype));
  const auto flat = static_cast<std::size_t>(plan_.flat_elements());
  // Only what travels comes from the communicator.
  if (rounds_) {
    gradients_ = device_.allocate(flat * size_bytes(DType::f32), "gradients");
    wire_ = communicator_.allocate(flat * size_bytes(dtype_of(config_.gradient_dtype)),
                                   "rounded gradients");
  } else {
    gradients_ = communicator_.allocate(flat * size_bytes(DType::f32), "gradients");
  }
  parameters_ = communicator_.allocate(flat * size_bytes(parameter_dtype_), "parameters");
  leaves_.emplace(leaves_per_rank(config_, plan_.ranks()), plan_, gradients_.view(DType::f32),
                  device_);

  for (std::size_t p = 0; p < plan_.parameters().size(); ++p) {
    const layout::Placement& place = plan_.placement(static_cast<ParameterIndex>(p));
    gradient_views_.push_back(view_in(gradients_, DType::f32, place.begin, place.elements));
    parameter_views_.push_back(view_in(parameters_, parameter_dtype_, place.begin, place.elements));
  }
  buckets_.resize(plan_.buckets().size());
  owned_.resize(buckets_.size());
  times_.resize(buckets_.size());
  reported_.resize(plan_.parameters().size());
  const std::size_t count = turns * buckets_.size();
  findings_ =
      device_.allocate_shared_with_host(count * sizeof(std::int64_t), "places of gradients");
  not_finite_ = {reinterpret_cast<std::int64_t*>(findings_.data()), count};
  std::ranges::fill(not_finite_, -1);
  for (std::size_t b = 0; b < buckets_.size(); ++b) make_bucket(static_cast<BucketIndex>(b));
  take_sums();

  const bool overlaps =
      communicator_.size() > 1 && (config_.overlap_gradients || config_.overlap_parameters);
  communication_ = device_.make_stream(
      overlaps ? device::StreamMode::concurrent : device::StreamMode::inlined, "communication");
}

void Engine::Impl::make_bucket(BucketIndex bucket) {
  const layout::Bucket& place = plan_.bucket(bucket);
  BucketRun& run = run_of(bucket);
  run.gradient = view_in(gradients_, DType::f32, place.begin, place.elements);
  run.parameter = view_in(parameters_, parameter_dtype_, place.begin, place.elements);
  run.wire = rounds_ ? view_in(wire_, dtype_of(config_.gradient_dtype), place.begin, place.elements)
                     : run.gradient;
  run.gradient_shards = communicator_.shards(run.wire);
  run.parameter_shards = communicator_.shards(run.parameter);
  add_round(run);
  for (GatherEvents& events : run.gathers)
    for (EventPtr* event :
         {&events.updated, &events.start, &events.end, &events.wait_begin, &events.wait_end})
      *event = device_.make_event();
  find_owned(bucket);
}

void Engine::Impl::add_round(BucketRun& run) {
  for (auto& rounds : run.reductions) {
    ReductionEvents& events = rounds.emplace_back();
    for (EventPtr* event :
         {&events.ready, &events.start, &events.end, &events.wait_begin, &events.wait_end})
      *event = device_.make_event();
  }
}

void Engine::Impl::take_sums() {
  if (config_.reduce_every == ReduceEvery::step)
    return;
  std::int64_t elements = 0;
  for (const OwnedShard& owned : owned_) elements += owned.gradient.elements;
  sums_ = device_.allocate(static_cast<std::size_t>(elements) * size_bytes(DType::f32),
                           "sums of micro-steps");
  std::int64_t begin = 0;
  for (const OwnedShard& owned : owned_) {
    sums_views_.push_back(sums_.view(DType::f32).slice(begin, owned.gradient.elements));
    begin += owned.gradient.elements;
  }
}

void Engine::Impl::find_owned(BucketIndex bucket) {
  const BucketRun& run = run_of(bucket);
  const std::int64_t shard = plan_.bucket(bucket).shard_elements;
  owned_[at(bucket)] = {
      bucket, sharded_ ? run.gradient.slice(communicator_.rank() * shard, shard) : run.gradient,
      sharded_ ? run.parameter_shards->own : run.parameter};
}

Engine::Engine(const layout::Plan& plan,
               DType parameter_dtype,
               bool sharded,
               const ParallelConfig& config,
               comm::Communicator& communicator,
               device::Device& device,
               device::Stream& compute)
    : impl_(std::make_unique<Impl>(
          plan, parameter_dtype, sharded, config, communicator, device, compute)) {}

Engine::~Engine() = default;

View Engine::gradient(ParameterIndex parameter) const {
  return impl_->gradient_views_[at(parameter)];
}
View Engine::parameter(ParameterIndex parameter) const {
  return impl_->parameter_views_[at(parameter)];
}

View Engine::bucket_gradients(BucketIndex bucket) const {
  const layout::Bucket& place = impl_->plan_.bucket(bucket);
  return impl_->view_in(impl_->gradients_, DType::f32, place.begin, place.elements);
}
View Engine::bucket_parameters(BucketIndex bucket) const {
  const layout::Bucket& place = impl_->plan_.bucket(bucket);
  return impl_->view_in(impl_->parameters_, impl_->parameter_dtype_, place.begin, place.elements);
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
void Engine::before_use(std::span<const ParameterIndex> parameters) {
  impl_->before_use(parameters);
}
void Engine::wait_for_parameters() {
  impl_->wait_for_parameters();
}
void Engine::publish_parameters() {
  impl_->publish_parameters();
}

StepTimes Engine::times(std::int64_t step) {
  return impl_->times(step);
}
void Engine::hold_collectives(bool held) {
  impl_->hold_collectives(held);
}
std::span<const BucketTimes> Engine::take_last_gathers() {
  return impl_->take_last_gathers();
}
std::int64_t Engine::leaves() const {
  return impl_->leaves_->per_step();
}
const layout::Plan& Engine::plan() const {
  return impl_->plan_;
}
bool Engine::sharded() const {
  return impl_->sharded_;
}
bool Engine::cached_shards() const {
  return impl_->config_.cached_shards;
}
DType Engine::parameter_dtype() const {
  return impl_->parameter_dtype_;
}
int Engine::rank() const {
  return impl_->communicator_.rank();
}
std::size_t Engine::gradient_bytes() const {
  return impl_->gradients_.bytes() + impl_->wire_.bytes() + impl_->leaves_->bytes() +
         impl_->sums_.bytes();
}
std::size_t Engine::parameter_bytes() const {
  return impl_->parameters_.bytes();
}

}  // namespace trireme::reduce
