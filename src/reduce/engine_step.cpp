// SPDX-License-Identifier: Apache-2.0
// Every arrow of the state machine.
#include <algorithm>
#include <string>

#include "base/error.hpp"

#include "ops/elementwise.hpp"
#include "ops/finite.hpp"

#include "reduce/engine_impl.hpp"

namespace trireme::reduce {

void Engine::Impl::begin_step() {
  ++steps_begun_;
  compute_.record(*step_began_[turn()]);
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    BucketRun& run = buckets_[b];
    TRIREME_EXPECT(run.phase == Phase::updated || run.phase == Phase::filling,
                   "a step begins while bucket {} is {}", b, name(run.phase));
    run.phase = Phase::filling;
    run.num_pending = plan_.buckets()[b].parameters.size();
  }
  reported_.assign(reported_.size(), 0);
  next_to_reduce_ = 0;
  round_ = 0;
  num_rounds_[turn()] = 1;
  num_updated_ = 0;
  leaves_->begin_step();
  leaf_squares_ = nullptr;
  device_.fill_zero(gradients_.view(DType::f32), compute_);
}

void Engine::Impl::measure_leaves(ops::StreamSum& squares) {
  TRIREME_EXPECT(config_.reduction == comm::Reduction::tree && leaves_->finished() == 0,
                 "leaves are measured with reduction: {}, after {} of them",
                 word(config_.reduction), leaves_->finished());
  leaf_squares_ = &squares;
}

void Engine::Impl::next_leaf() {
  const bool between_leaves =
      std::ranges::none_of(reported_, [](char reported) { return reported != 0; }) &&
      std::ranges::all_of(buckets_, [](const BucketRun& b) { return b.phase == Phase::filling; });
  TRIREME_EXPECT(between_leaves && !leaves_->in_last(),
                 "leaf {} of {} ends outside of a step, or after its last leaf, or with gradients "
                 "reported ready",
                 leaves_->finished(), leaves_->per_step());
  if (leaf_squares_ != nullptr)  // with the padding, which is zero
    leaf_squares_->add_squares(gradients_.view(DType::f32), compute_);
  leaves_->set_aside(compute_);
}

void Engine::Impl::next_micro_step() {
  TRIREME_EXPECT(config_.reduce_every == ReduceEvery::micro_step,
                 "a micro-step of its own with reduce_every: {}", word(config_.reduce_every));
  finish_reduction();
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    BucketRun& run = buckets_[b];
    await_shard(static_cast<BucketIndex>(b));
    if (round_ == 0)
      device_.copy(sums_views_[b], owned_[b].gradient, compute_);
    else
      ops::add(sums_views_[b], owned_[b].gradient, compute_);
    run.phase = Phase::filling;
    run.num_pending = plan_.buckets()[b].parameters.size();
    if (run.reductions[turn()].size() == round_ + 1)
      add_round(run);
  }
  num_rounds_[turn()] = ++round_ + 1;
  reported_.assign(reported_.size(), 0);
  next_to_reduce_ = 0;
  device_.fill_zero(gradients_.view(DType::f32), compute_);
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
  if (leaf_squares_ != nullptr)
    leaf_squares_->add_squares(gradient_views_[at(parameter)], compute_);
  leaves_->add_waiting(parameter, compute_);
  if (--run.num_pending > 0)
    return;
  TRIREME_EXPECT(!run.gathering,
                 "the gradients of bucket {} ({}, …) are ready, but nobody has "
                 "waited for its parameters since their last update",
                 at(bucket), plan_.parameter(parameter).name);
  if (config_.check_gradients)
    ops::find_not_finite(not_finite_[turn() * buckets_.size() + at(bucket)], run.gradient,
                         compute_);
  compute_.record(*reduction_of(bucket).ready);
  run.phase = Phase::ready;
  while (next_to_reduce_ < buckets_.size() && buckets_[next_to_reduce_].phase == Phase::ready)
    reduce(static_cast<BucketIndex>(next_to_reduce_++));
}

void Engine::Impl::reduce(BucketIndex bucket) {
  const ReductionEvents& events = reduction_of(bucket);
  run_of(bucket).phase = Phase::reducing;
  if (config_.overlap_gradients) {
    if (holds_)
      held_.push_back({bucket, false});
    else
      start_reduction(bucket);
    return;
  }
  compute_.record(*events.wait_begin);
  start_reduction(bucket);
  compute_.wait(*events.end);
  compute_.record(*events.wait_end);
}

void Engine::Impl::start_reduction(BucketIndex bucket) {
  BucketRun& run = run_of(bucket);
  const ReductionEvents& events = reduction_of(bucket);
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
}

void Engine::Impl::start_held(BucketIndex last, bool gathers) {
  if (std::find(held_.begin() + static_cast<std::ptrdiff_t>(next_held_), held_.end(),
                Held{last, gathers}) == held_.end())
    return;
  for (bool done = false; !done;) {
    const Held next = held_[next_held_++];
    next.gathers ? start_gather(next.bucket) : start_reduction(next.bucket);
    done = next == Held{last, gathers};
  }
  if (next_held_ == held_.size()) {
    held_.clear();
    next_held_ = 0;
  }
}

void Engine::Impl::hold_collectives(bool held) {
  holds_ = held;
}

void Engine::Impl::finish_reduction() const {
  std::string missing;
  for (std::size_t p = 0; p < reported_.size(); ++p)
    if (reported_[p] == 0)
      missing += (missing.empty() ? "" : ", ") + plan_.parameters()[p].name;
  TRIREME_EXPECT(missing.empty(), "gradients were never reported ready: {}", missing);
}

std::optional<NotFinite> Engine::Impl::first_not_finite(std::int64_t step) const {
  TRIREME_EXPECT(step == steps_begun_ || step + 1 == steps_begun_,
                 "asked for findings of step {} in step {}", step, steps_begun_);
  const auto found = not_finite_.subspan(turn_of(step) * buckets_.size(), buckets_.size());
  const auto first = std::ranges::find_if(found, [](std::int64_t place) { return place >= 0; });
  if (first == found.end())
    return std::nullopt;
  const auto bucket = static_cast<BucketIndex>(first - found.begin());
  const std::int64_t at_element = plan_.bucket(bucket).begin + *first;
  // Parameters lie in flat order, and padding is zero.
  const auto& parameters = plan_.bucket(bucket).parameters;
  const auto after = std::ranges::find_if(parameters, [&](ParameterIndex parameter) {
    return plan_.placement(parameter).begin > at_element;
  });
  const ParameterIndex parameter = *(after - 1);
  return NotFinite{bucket, parameter, at_element - plan_.placement(parameter).begin};
}

void Engine::Impl::wait_for_shard(BucketIndex bucket) {
  if (run_of(bucket).phase == Phase::shard_ready)
    return;
  await_shard(bucket);
  if (round_ > 0)
    ops::add(owned_[at(bucket)].gradient, sums_views_[at(bucket)], compute_);
}

void Engine::Impl::await_shard(BucketIndex bucket) {
  BucketRun& run = run_of(bucket);
  TRIREME_EXPECT(run.phase == Phase::reducing, "waiting for the shard of bucket {}, which is {}",
                 at(bucket), name(run.phase));
  if (config_.overlap_gradients) {
    const ReductionEvents& events = reduction_of(bucket);
    start_held(bucket, false);
    compute_.record(*events.wait_begin);
    compute_.wait(*events.end);
    compute_.record(*events.wait_end);
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
  ++num_updated_;
}

void Engine::Impl::gather(BucketIndex bucket) {
  BucketRun& run = run_of(bucket);
  run.last_gather = turn();
  const GatherEvents& events = run.gathers[run.last_gather];
  if (!config_.overlap_parameters)
    compute_.record(*events.wait_begin);
  compute_.record(*events.updated);
  if (!config_.cached_shards) {
    run.parameter_shards = communicator_.shards(run.parameter);
    find_owned(bucket);
  }
  if (!config_.overlap_parameters) {
    start_gather(bucket);
    compute_.wait(*events.end);
    compute_.record(*events.wait_end);
    return;
  }
  if (holds_)
    held_.push_back({bucket, true});
  else
    start_gather(bucket);
  run.gathering = true;
  ++num_gathering_;
}

void Engine::Impl::start_gather(BucketIndex bucket) {
  const BucketRun& run = run_of(bucket);
  const GatherEvents& events = run.gathers[run.last_gather];
  communication_->wait(*events.updated);
  communication_->record(*events.start);
  communicator_.all_gather(*run.parameter_shards, bucket, *communication_);
  communication_->record(*events.end);
}

void Engine::Impl::wait_for_gather(BucketIndex bucket) {
  BucketRun& run = run_of(bucket);
  const GatherEvents& events = run.gathers[run.last_gather];
  start_held(bucket, true);
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
    if (const BucketIndex bucket = plan_.placement(parameter).bucket; run_of(bucket).gathering)
      wait_for_gather(bucket);
}

void Engine::Impl::wait_for_parameters() {
  for (std::size_t b = buckets_.size(); b-- > 0;)
    if (buckets_[b].gathering)
      wait_for_gather(static_cast<BucketIndex>(b));
}

void Engine::Impl::publish_parameters() {
  wait_for_parameters();
  if (!sharded_)
    return;
  for (std::size_t b = buckets_.size(); b-- > 0;) {
    gather(static_cast<BucketIndex>(b));
    buckets_[b].gathers[turn()].counts = false;
  }
  wait_for_parameters();
}

}  // namespace trireme::reduce
