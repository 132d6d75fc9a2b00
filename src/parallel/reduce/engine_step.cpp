// SPDX-License-Identifier: Apache-2.0
// The transitions of the state machine (engine.hpp).
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/error.hpp"

#include "ops/elementwise.hpp"
#include "ops/optimizer/reductions.hpp"

#include "reduce/engine.hpp"

namespace trireme::reduce {

void Engine::begin_step(std::optional<std::int64_t> leaves) {
  ++steps_begun_;
  compute_.record(*step_began_[event_set()]);
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    TRIREME_EXPECT(buckets_[b].phase == Phase::updated || buckets_[b].phase == Phase::filling,
                   "a step begins while bucket {} is {}", b, word(buckets_[b].phase));
  round_ = 0;
  num_updated_ = 0;
  leaves_.begin_step(leaves.value_or(leaves_.most()));
  leaf_squares_ = nullptr;
  parameters_.begin_step(steps_begun_);
  transfers_.begin_step(steps_begun_);
  begin_round();
}

void Engine::begin_round() {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    BucketRun& run = buckets_[b];
    if (!gradients_.ring())
      await_reduction(static_cast<BucketIndex>(b));
    run.phase = Phase::filling;
    run.begun = false;
    run.num_pending = plan_.buckets()[b].parameters.size();
    if (run.reductions[event_set()].size() == round_)
      add_round(run);
  }
  num_rounds_[event_set()] = round_ + 1;
  if (locations_.size() == round_)
    add_locations();
  reported_.assign(reported_.size(), 0);
  next_to_reduce_ = 0;
  if (!gradients_.ring() && !std::exchange(holds_errors_, false))
    device_.fill_zero(gradients_.all(), compute_);
}

void Engine::begin_with_errors() {
  TRIREME_EXPECT(steps_begun_ == 0 && !gradients_.ring(),
                 "errors of earlier steps before step {}, with {} slots", steps_begun_ + 1,
                 slot_buckets_.size());
  holds_errors_ = true;
  device_.fill_zero(gradients_.all(), compute_);
}

void Engine::scale_errors(float factor) {
  const auto scale = [&](View errors) {
    run(ops::Cast{.to = errors, .from = errors, .factor = factor}, compute_);
  };
  for (const Carried& one : carried())
    if (one.holder != Carried::Holder::all)  // factors are a direction only
      scale(one.values);
  if (holds_errors_)
    scale(gradients_.all());
}

void Engine::measure_leaves(ops::StreamSum& squares) {
  TRIREME_EXPECT(config_.reduction == comm::Reduction::tree && leaves_.finished() == 0,
                 "measure_leaves() with reduction: {}, after {} leaves", word(config_.reduction),
                 leaves_.finished());
  leaf_squares_ = &squares;
}

void Engine::next_leaf() {
  const bool between_leaves =
      std::ranges::none_of(reported_, [](char reported) { return reported != 0; }) &&
      std::ranges::all_of(buckets_, [](const BucketRun& b) { return b.phase == Phase::filling; });
  TRIREME_EXPECT(between_leaves && !leaves_.in_last(),
                 "leaf {} of {} ends outside of a step, or after its last leaf, or with gradients "
                 "reported ready",
                 leaves_.finished(), leaves_.per_step());
  if (leaf_squares_ != nullptr)  // includes the padding, which is zero
    leaf_squares_->add_squares(gradients_.all(), compute_);
  leaves_.set_aside(compute_);
}

void Engine::next_micro_step() {
  TRIREME_EXPECT(config_.reduces_micro_steps(), "next_micro_step() with reduce_every: {}",
                 word(config_.reduce_every));
  finish_reduction();
  ++round_;
  begin_round();
  parameters_.begin_forward();
}

void Engine::before_write(ParameterIndex parameter) {
  const BucketIndex bucket = plan_.placement(parameter).bucket;
  BucketRun& run = run_of(bucket);
  if (!gradients_.ring() || run.begun)
    return;
  std::optional<BucketIndex>& previous = slot_buckets_[gradients_.ring()->slot(bucket)];
  if (previous) {
    const BucketRun& before = run_of(*previous);
    TRIREME_EXPECT(!before.begun || before.phase == Phase::reducing,
                   "{} is written to memory of bucket {}, which is {}",
                   plan_.parameter(parameter).name, at(*previous), word(before.phase));
    await_reduction(*previous);
  }
  previous = bucket;
  run.begun = true;
  device_.fill_zero(gradients_.bucket(bucket), compute_);
}

void Engine::mark_ready(ParameterIndex parameter) {
  const BucketIndex bucket = plan_.placement(parameter).bucket;
  BucketRun& run = run_of(bucket);
  TRIREME_EXPECT(
      run.phase == Phase::filling && reported_[at(parameter)] == 0,
      "the gradient of {} was reported ready twice, or outside of a step (bucket {} is {})",
      plan_.parameter(parameter).name, at(bucket), word(run.phase));
  TRIREME_EXPECT(leaves_.in_last(),
                 "the gradient of {} was reported ready in leaf {} of a step of {}",
                 plan_.parameter(parameter).name, leaves_.finished(), leaves_.per_step());
  TRIREME_EXPECT(run.begun || !gradients_.ring(),
                 "the gradient of {} was reported ready without before_write()",
                 plan_.parameter(parameter).name);
  reported_[at(parameter)] = 1;
  if (leaf_squares_ != nullptr)
    leaf_squares_->add_squares(gradients_.gradient(parameter), compute_);
  leaves_.add_waiting(parameter, compute_);
  if (--run.num_pending > 0)
    return;
  TRIREME_EXPECT(!parameters_.gathering(bucket),
                 "the gradients of bucket {} ({}, …) are ready, but compute has not waited for its "
                 "parameters since their last update",
                 at(bucket), plan_.parameter(parameter).name);
  if (config_.check_gradients)
    ops::find_not_finite(locations(round_, event_set()).subspan(at(bucket), 1),
                         std::array<ConstView, 1>{gradients_.bucket(bucket)}, compute_);
  run.reduced_round = round_;
  compute_.record(*reduction_of(bucket).ready);
  run.phase = Phase::ready;
  while (next_to_reduce_ < buckets_.size() && buckets_[next_to_reduce_].phase == Phase::ready)
    reduce(static_cast<BucketIndex>(next_to_reduce_++));
}

void Engine::reduce(BucketIndex bucket) {
  const BucketEvents& events = reduction_of(bucket);
  BucketRun& run = run_of(bucket);
  run.phase = Phase::reducing;
  if (config_.overlap_gradients) {
    run.awaits = true;
    queue_.push(*this, bucket);
    return;
  }
  compute_.record(*events.wait_begin);
  start(bucket);
  compute_.wait(*events.end);
  compute_.record(*events.wait_end);
}

void Engine::start(BucketIndex bucket) {
  const BucketEvents& events = reduction_of(bucket);
  if (!config_.cached_shards)
    gradients_.find_shards(bucket);
  device::Stream& stream = queue_.stream();
  stream.wait(*events.ready);
  stream.record(*events.start);
  gradients_.reduce(bucket, run_of(bucket).reduced_round == 0, stream);
  stream.record(*events.end);
}

void Engine::await_reduction(BucketIndex bucket) {
  BucketRun& run = run_of(bucket);
  if (!run.awaits)
    return;
  queue_.about_to_wait(*this, bucket);
  reduction_of(bucket).await_on(compute_);
  run.awaits = false;
}

void Engine::finish_reduction() const {
  std::string missing;
  for (std::size_t p = 0; p < reported_.size(); ++p)
    if (reported_[p] == 0)
      missing += (missing.empty() ? "" : ", ") + plan_.parameters()[p].name;
  TRIREME_EXPECT(missing.empty(), "gradients were never reported ready: {}", missing);
}

std::optional<NotFinite> Engine::first_not_finite(std::int64_t step) const {
  TRIREME_EXPECT(step == steps_begun_ || step + 1 == steps_begun_,
                 "asked for findings of step {} in step {}", step, steps_begun_);
  std::span<std::int64_t> found;
  auto first = found.end();
  for (std::size_t round = 0; round < num_rounds_[event_set_of(step)] && first == found.end();
       ++round) {
    found = locations(round, event_set_of(step));
    first = std::ranges::find_if(found, [](std::int64_t element) { return element >= 0; });
  }
  if (first == found.end())
    return std::nullopt;
  const auto bucket = static_cast<BucketIndex>(first - found.begin());
  const std::int64_t at_element = plan_.bucket(bucket).begin + *first;
  // Parameters are in flat order, and padding is zero.
  const auto& parameters = plan_.bucket(bucket).parameters;
  const auto after = std::ranges::find_if(parameters, [&](ParameterIndex parameter) {
    return plan_.placement(parameter).begin > at_element;
  });
  const ParameterIndex parameter = *(after - 1);
  return NotFinite{bucket, parameter, at_element - plan_.placement(parameter).begin};
}

void Engine::wait_for_shard(BucketIndex bucket) {
  BucketRun& run = run_of(bucket);
  if (run.phase == Phase::shard_ready)
    return;
  TRIREME_EXPECT(run.phase == Phase::reducing, "waiting for the shard of bucket {}, which is {}",
                 at(bucket), word(run.phase));
  await_reduction(bucket);
  if (!config_.cached_shards)
    find_owned(bucket);
  run.phase = Phase::shard_ready;
}

void Engine::mark_updated(BucketIndex bucket) {
  BucketRun& run = run_of(bucket);
  TRIREME_EXPECT(run.phase == Phase::shard_ready, "bucket {} was updated while {}", at(bucket),
                 word(run.phase));
  run.phase = Phase::updated;
  parameters_.publish(bucket, steps_begun_, true);
  if (!config_.cached_shards)
    find_owned(bucket);
  ++num_updated_;
}

void Engine::publish_parameters() {
  parameters_.await_gathers();
  for (std::size_t b = buckets_.size(); b-- > 0;)
    parameters_.publish(static_cast<BucketIndex>(b), steps_begun_, false);
  parameters_.before_use_of_all();
}

}  // namespace trireme::reduce
