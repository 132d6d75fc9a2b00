// SPDX-License-Identifier: Apache-2.0
#include "reduce/engine.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/error.hpp"

#include "ops/elementwise.hpp"
#include "ops/finite.hpp"

#include "reduce/leaves.hpp"

namespace trireme::reduce {
namespace {

/// The gradient half of a bucket's life; the parameter half is Bucket::gathering.
enum class Phase : std::uint8_t { filling, ready, reducing, shard_ready, updated };

const char* name(Phase phase) {
  constexpr const char* names[] = {"filling", "ready", "reducing", "shard_ready", "updated"};
  return names[static_cast<std::size_t>(phase)];
}

using EventPtr = std::unique_ptr<device::Event>;

struct ReductionEvents {
  EventPtr ready, start, end, wait_begin, wait_end;
};

struct GatherEvents {
  EventPtr updated, start, end, wait_begin, wait_end;
  bool counts = false;  // recorded by a step, and not yet in its times
};

struct BucketRun {
  View gradient, parameter;  // whole, padding included
  View wire;                 // what is reduced: the gradient itself, or its rounded copy
  std::unique_ptr<comm::Shards> gradient_shards, parameter_shards;
  ReductionEvents reduction;
  std::array<GatherEvents, 2> gathers;  // this step's and the last one's, in turns
  std::size_t num_pending = 0;          // parameters not yet reported ready
  Phase phase = Phase::updated;
  std::size_t last_gather = 0;  // which of `gathers` the latest one used
  bool gathering = false;
};

double seconds_of(const device::Event& event) {
  if (!event.reached())
    event.wait();
  return event.seconds();
}

}  // namespace

class Engine::Impl {
 public:
  Impl(const layout::Plan& plan,
       DType parameter_dtype,
       bool sharded,
       const ParallelConfig& config,
       comm::Communicator& communicator,
       device::Device& device,
       device::Stream& compute);

  void begin_step();
  void next_leaf();
  void mark_ready(ParameterIndex parameter);
  void finish_reduction() const;
  [[nodiscard]] std::optional<NotFinite> first_not_finite() const;
  void wait_for_shard(BucketIndex bucket);
  void mark_updated(BucketIndex bucket);
  void before_use(std::span<const ParameterIndex> parameters);
  void wait_for_parameters();
  void publish_parameters();

  [[nodiscard]] View view_in(const device::Buffer& arena,
                             DType dtype,
                             std::int64_t begin,
                             std::int64_t elements) const {
    return arena.view(dtype, static_cast<std::size_t>(begin) * size_bytes(dtype), elements);
  }

  const layout::Plan plan_;
  const DType parameter_dtype_;
  const bool sharded_;
  const ParallelConfig config_;
  comm::Communicator& communicator_;
  device::Device& device_;
  device::Stream& compute_;

  const bool rounds_;  // gradients travel as a copy

  device::Buffer gradients_, wire_, parameters_;
  std::optional<Leaves> leaves_;                        // always there
  std::vector<View> gradient_views_, parameter_views_;  // by parameter
  std::vector<std::int64_t> not_finite_;                // by parameter: first element, or -1
  std::vector<OwnedShard> owned_;                       // by bucket
  std::vector<BucketTimes> times_;                      // by bucket
  double exposed_seconds_ = 0;

 private:
  void make_bucket(BucketIndex bucket);
  void find_owned(BucketIndex bucket);
  void reduce(BucketIndex bucket);
  void gather(BucketIndex bucket);
  void wait_for_gather(BucketRun& run);
  void collect_times();

  BucketRun& run_of(BucketIndex bucket) { return buckets_[at(bucket)]; }

  std::vector<BucketRun> buckets_;
  std::vector<char> reported_;  // by parameter, in this step
  std::size_t next_to_reduce_ = 0;
  std::size_t num_updated_ = 0;
  std::size_t num_gathering_ = 0;
  std::size_t step_parity_ = 0;

  // Last: its worker ends before the memory that it works on goes.
  std::unique_ptr<device::Stream> communication_;
};

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
  not_finite_.resize(plan_.parameters().size(), -1);
  for (std::size_t b = 0; b < buckets_.size(); ++b) make_bucket(static_cast<BucketIndex>(b));

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
  for (EventPtr* event : {&run.reduction.ready, &run.reduction.start, &run.reduction.end,
                          &run.reduction.wait_begin, &run.reduction.wait_end})
    *event = device_.make_event();
  for (GatherEvents& events : run.gathers)
    for (EventPtr* event :
         {&events.updated, &events.start, &events.end, &events.wait_begin, &events.wait_end})
      *event = device_.make_event();
  find_owned(bucket);
}

void Engine::Impl::find_owned(BucketIndex bucket) {
  const BucketRun& run = run_of(bucket);
  const std::int64_t shard = plan_.bucket(bucket).shard_elements;
  owned_[at(bucket)] = {
      bucket, sharded_ ? run.gradient.slice(communicator_.rank() * shard, shard) : run.gradient,
      sharded_ ? run.parameter_shards->own : run.parameter};
}

void Engine::Impl::begin_step() {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    BucketRun& run = buckets_[b];
    TRIREME_EXPECT(run.phase == Phase::updated || run.phase == Phase::filling,
                   "a step begins while bucket {} is {}", b, name(run.phase));
    run.phase = Phase::filling;
    run.num_pending = plan_.buckets()[b].parameters.size();
  }
  reported_.assign(reported_.size(), 0);
  next_to_reduce_ = 0;
  num_updated_ = 0;
  step_parity_ ^= 1U;
  leaves_->begin_step();
  device_.fill_zero(gradients_.view(DType::f32), compute_);
}

void Engine::Impl::next_leaf() {
  const bool between_leaves =
      std::ranges::none_of(reported_, [](char reported) { return reported != 0; }) &&
      std::ranges::all_of(buckets_, [](const BucketRun& b) { return b.phase == Phase::filling; });
  TRIREME_EXPECT(between_leaves && !leaves_->in_last(),
                 "leaf {} of {} ends outside of a step, or behind its last leaf, or with gradients "
                 "reported ready",
                 leaves_->finished(), leaves_->per_step());
  leaves_->set_aside(compute_);
}

void Engine::Impl::mark_ready(ParameterIndex parameter) {
  const BucketIndex bucket = plan_.placement(parameter).bucket;
  BucketRun& run = run_of(bucket);
  TRIREME_EXPECT(
      run.phase == Phase::filling && reported_[at(parameter)] == 0,
      "the gradient of {} was reported ready twice, or outside of a step (bucket {} is {})",
      plan_.parameter(parameter).name, at(bucket), name(run.phase));
  TRIREME_EXPECT(leaves_->in_last(),
                 "the gradient of {} was reported ready in leaf {} of a step of {}",
                 plan_.parameter(parameter).name, leaves_->finished(), leaves_->per_step());
  reported_[at(parameter)] = 1;
  leaves_->add_waiting(parameter, compute_);
  if (config_.check_gradients)
    ops::find_not_finite(not_finite_[at(parameter)], gradient_views_[at(parameter)], compute_);
  if (--run.num_pending > 0)
    return;
  TRIREME_EXPECT(!run.gathering,
                 "the gradients of bucket {} ({}, …) are ready, but nobody has "
                 "waited for its parameters since their last update",
                 at(bucket), plan_.parameter(parameter).name);
  compute_.record(*run.reduction.ready);
  run.phase = Phase::ready;
  while (next_to_reduce_ < buckets_.size() && buckets_[next_to_reduce_].phase == Phase::ready)
    reduce(static_cast<BucketIndex>(next_to_reduce_++));
}

void Engine::Impl::reduce(BucketIndex bucket) {
  BucketRun& run = run_of(bucket);
  const ReductionEvents& events = run.reduction;
  if (!config_.overlap_gradients)
    compute_.record(*events.wait_begin);
  if (!config_.cached_shards)
    run.gradient_shards = communicator_.shards(run.wire);
  communication_->wait(*events.ready);
  communication_->record(*events.start);
  if (rounds_)
    ops::cast(run.wire, run.gradient, *communication_);
  if (sharded_)
    communicator_.reduce_scatter(*run.gradient_shards, bucket, *communication_);
  else
    communicator_.all_reduce(*run.gradient_shards, bucket, *communication_);
  if (rounds_)
    ops::cast(owned_[at(bucket)].gradient, sharded_ ? run.gradient_shards->own : run.wire,
              *communication_);
  communication_->record(*events.end);
  run.phase = Phase::reducing;
  if (!config_.overlap_gradients) {
    compute_.wait(*events.end);
    compute_.record(*events.wait_end);
  }
}

void Engine::Impl::finish_reduction() const {
  std::string missing;
  for (std::size_t p = 0; p < reported_.size(); ++p)
    if (reported_[p] == 0)
      missing += (missing.empty() ? "" : ", ") + plan_.parameters()[p].name;
  TRIREME_EXPECT(missing.empty(), "gradients were never reported ready: {}", missing);
}

std::optional<NotFinite> Engine::Impl::first_not_finite() const {
  for (std::size_t p = not_finite_.size(); p-- > 0;)
    if (const auto parameter = static_cast<ParameterIndex>(p); not_finite_[p] >= 0)
      return NotFinite{plan_.placement(parameter).bucket, parameter, not_finite_[p]};
  return std::nullopt;
}

void Engine::Impl::wait_for_shard(BucketIndex bucket) {
  BucketRun& run = run_of(bucket);
  if (run.phase == Phase::shard_ready)
    return;
  TRIREME_EXPECT(run.phase == Phase::reducing, "waiting for the shard of bucket {}, which is {}",
                 at(bucket), name(run.phase));
  if (config_.overlap_gradients) {
    compute_.record(*run.reduction.wait_begin);
    compute_.wait(*run.reduction.end);
    compute_.record(*run.reduction.wait_end);
  }
  if (!config_.cached_shards)
    find_owned(bucket);
  run.phase = Phase::shard_ready;
}

void Engine::Impl::mark_updated(BucketIndex bucket) {
  BucketRun& run = run_of(bucket);
  TRIREME_EXPECT(run.phase == Phase::shard_ready, "bucket {} was updated while {}", at(bucket),
                 name(run.phase));
  run.phase = Phase::updated;
  if (sharded_) {
    gather(bucket);
    run.gathers[run.last_gather].counts = true;
  }
  if (++num_updated_ == buckets_.size())
    collect_times();
}

void Engine::Impl::gather(BucketIndex bucket) {
  BucketRun& run = run_of(bucket);
  run.last_gather = step_parity_;
  const GatherEvents& events = run.gathers[run.last_gather];
  if (!config_.overlap_parameters)
    compute_.record(*events.wait_begin);
  compute_.record(*events.updated);
  if (!config_.cached_shards) {
    run.parameter_shards = communicator_.shards(run.parameter);
    find_owned(bucket);
  }
  communication_->wait(*events.updated);
  communication_->record(*events.start);
  communicator_.all_gather(*run.parameter_shards, bucket, *communication_);
  communication_->record(*events.end);
  if (config_.overlap_parameters) {
    run.gathering = true;
    ++num_gathering_;
  } else {
    compute_.wait(*events.end);
    compute_.record(*events.wait_end);
  }
}

void Engine::Impl::wait_for_gather(BucketRun& run) {
  const GatherEvents& events = run.gathers[run.last_gather];
  compute_.record(*events.wait_begin);
  compute_.wait(*events.end);
  compute_.record(*events.wait_end);
  run.gathering = false;
  --num_gathering_;
}

void Engine::Impl::before_use(std::span<const ParameterIndex> parameters) {
  if (num_gathering_ == 0)
    return;
  for (const ParameterIndex parameter : parameters)
    if (BucketRun& run = run_of(plan_.placement(parameter).bucket); run.gathering)
      wait_for_gather(run);
}

void Engine::Impl::wait_for_parameters() {
  for (std::size_t b = buckets_.size(); b-- > 0;)
    if (buckets_[b].gathering)
      wait_for_gather(buckets_[b]);
}

void Engine::Impl::publish_parameters() {
  wait_for_parameters();
  if (!sharded_)
    return;
  for (std::size_t b = buckets_.size(); b-- > 0;) {
    gather(static_cast<BucketIndex>(b));
    buckets_[b].gathers[step_parity_].counts = false;
  }
  wait_for_parameters();
}

// Compute has waited for everything that is read here, so on an inline compute stream nothing
// blocks.
void Engine::Impl::collect_times() {
  exposed_seconds_ = 0;
  const std::size_t waited_for = config_.overlap_parameters ? step_parity_ ^ 1U : step_parity_;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    BucketTimes& times = times_[b];
    times = {};
    const ReductionEvents& reduction = buckets_[b].reduction;
    times.ready = seconds_of(*reduction.ready);
    times.start = seconds_of(*reduction.start);
    times.end = seconds_of(*reduction.end);
    times.waited = seconds_of(*reduction.wait_end) - seconds_of(*reduction.wait_begin);
    if (GatherEvents& gather = buckets_[b].gathers[waited_for]; gather.counts) {
      times.gather_start = seconds_of(*gather.start);
      times.gather_end = seconds_of(*gather.end);
      times.gather_waited = seconds_of(*gather.wait_end) - seconds_of(*gather.wait_begin);
      gather.counts = false;
    }
    exposed_seconds_ += times.waited + times.gather_waited;
  }
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
void Engine::next_leaf() {
  impl_->next_leaf();
}
void Engine::mark_ready(ParameterIndex parameter) {
  impl_->mark_ready(parameter);
}
void Engine::finish_reduction() {
  impl_->finish_reduction();
}
std::optional<NotFinite> Engine::first_not_finite() const {
  return impl_->first_not_finite();
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

std::span<const BucketTimes> Engine::times() const {
  return impl_->times_;
}
double Engine::exposed_seconds() const {
  return impl_->exposed_seconds_;
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
  return impl_->gradients_.bytes() + impl_->wire_.bytes() + impl_->leaves_->bytes();
}
std::size_t Engine::parameter_bytes() const {
  return impl_->parameters_.bytes();
}

}  // namespace trireme::reduce
