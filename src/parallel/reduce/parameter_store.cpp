// SPDX-License-Identifier: Apache-2.0
#include "reduce/parameter_store.hpp"

#include "base/error.hpp"

namespace trireme::reduce {

ParameterStore::ParameterStore(const layout::Plan& plan,
                               DType dtype,
                               const ParallelConfig& config,
                               comm::Communicator& communicator,
                               device::Device& device,
                               device::Stream& compute,
                               CollectiveQueue& queue)
    : plan_(plan),
      dtype_(dtype),
      sharded_(config.sharded()),
      overlaps_(config.overlap_parameters),
      cached_(config.cached_shards),
      communicator_(communicator),
      device_(device),
      compute_(compute),
      queue_(queue) {
  if (config.shard == layout::Shard::parameters)
    residency_.emplace(plan_, config.gather_options());
  const auto bytes = [&](std::int64_t elements) {
    return static_cast<std::size_t>(elements) * size_bytes(dtype_);
  };
  arena_ = communicator_.allocate(
      bytes(residency_ ? residency_->ring().elements() : plan_.flat_elements()), "parameters");
  if (shares_slots())
    owned_ = device_.allocate(bytes(plan_.owned_elements()), "shards of parameters");
  const View all = arena_.view(dtype_);
  for (std::size_t b = 0; b < plan_.buckets().size(); ++b) {
    const auto index = static_cast<BucketIndex>(b);
    const layout::Bucket& place = plan_.bucket(index);
    Bucket& bucket = buckets_.emplace_back();
    bucket.whole =
        all.slice(residency_ ? residency_->ring().begin(index) : place.begin, place.elements);
    if (shares_slots())
      bucket.own = owned_.view(dtype_).slice(plan_.owned_begin(index), place.shard_elements);
    bucket.shards = communicator_.shards(bucket.whole);
    bucket.of_no_step.make(device_);
    add_gathers(bucket);
  }
  for (std::size_t p = 0; p < plan_.parameters().size(); ++p) {
    const layout::Placement& place = plan_.placement(static_cast<ParameterIndex>(p));
    views_.push_back(
        bucket(place.bucket).slice(place.begin - plan_.bucket(place.bucket).begin, place.elements));
  }
}

View ParameterStore::own(BucketIndex bucket) const {
  const Bucket& one = buckets_[at(bucket)];
  if (shares_slots())
    return one.own;
  return sharded_ ? one.shards->own : one.whole;
}

void ParameterStore::begin_step(std::int64_t step) {
  event_set_ = event_set_of(step);
  for (Bucket& bucket : buckets_) bucket.of_steps[event_set_of(step + 1)].num = 0;
}

void ParameterStore::begin_forward() {
  if (residency_)
    gather(residency_->begin_forward());
}

// With overlap, the next step waits for the gather.
void ParameterStore::publish(BucketIndex bucket, std::int64_t step, bool counts) {
  if (!sharded_)
    return;
  event_set_.reset();
  if (counts)
    event_set_ = event_set_of(overlaps_ ? step + 1 : step);
  if (residency_)
    gather(residency_->update(bucket));
  else
    begin(bucket);
  event_set_.reset();
}

void ParameterStore::gather(std::span<const layout::Residency::Gather> gathers) {
  for (const layout::Residency::Gather& one : gathers) {
    if (one.evicted && gathering(*one.evicted))
      wait(*one.evicted);
    if (gathering(one.bucket))
      wait(one.bucket);
    begin(one.bucket);
  }
}

// If buckets share slots, a micro-step has two gathers: one for forward, one for backward.
void ParameterStore::add_gathers(Bucket& bucket) {
  const std::size_t more = shares_slots() ? 2 : 1;
  for (Gathers& gathers : bucket.of_steps)
    for (std::size_t i = 0; i < more; ++i) gathers.all.emplace_back().make(device_);
}

BucketEvents& ParameterStore::next_gather(Bucket& bucket) {
  if (!event_set_)
    return bucket.of_no_step;
  Gathers& gathers = bucket.of_steps[*event_set_];
  if (gathers.num == gathers.all.size())
    add_gathers(bucket);
  return gathers.all[gathers.num++];
}

void ParameterStore::begin(BucketIndex bucket) {
  Bucket& one = at_bucket(bucket);
  one.latest = &next_gather(one);
  if (!overlaps_)
    compute_.record(*one.latest->wait_begin);
  compute_.record(*one.latest->ready);
  if (!cached_)
    one.shards = communicator_.shards(one.whole);
  if (!overlaps_) {
    start(bucket);
    compute_.wait(*one.latest->end);
    compute_.record(*one.latest->wait_end);
    return;
  }
  one.gathering = true;
  ++num_gathering_;
  queue_.push(*this, bucket);
}

void ParameterStore::start(BucketIndex bucket) {
  const Bucket& one = at_bucket(bucket);
  const BucketEvents& gather = *one.latest;
  device::Stream& stream = queue_.stream();
  stream.wait(*gather.ready);
  stream.record(*gather.start);
  if (shares_slots())
    device_.copy(one.shards->own, one.own, stream);
  communicator_.all_gather(*one.shards, bucket, stream);
  stream.record(*gather.end);
}

void ParameterStore::wait(BucketIndex bucket) {
  Bucket& one = at_bucket(bucket);
  const BucketEvents& gather = *one.latest;
  queue_.about_to_wait(*this, bucket);
  gather.await_on(compute_);
  one.gathering = false;
  --num_gathering_;
}

void ParameterStore::before_use(std::span<const ParameterIndex> parameters) {
  if (residency_)
    gather(residency_->use(parameters));
  if (num_gathering_ == 0)
    return;
  for (const ParameterIndex parameter : parameters)
    if (const BucketIndex bucket = plan_.placement(parameter).bucket; gathering(bucket))
      wait(bucket);
}

void ParameterStore::before_use_of_all() {
  if (residency_ && !shares_slots())
    gather(residency_->use_all());
  await_gathers();
}

void ParameterStore::await_gathers() {
  for (std::size_t b = buckets_.size(); b-- > 0;)
    if (buckets_[b].gathering)
      wait(static_cast<BucketIndex>(b));
}

void ParameterStore::take_times(BucketIndex bucket,
                                std::int64_t step,
                                std::vector<GatherTimes>& times) {
  Gathers& gathers = at_bucket(bucket).of_steps[event_set_of(step)];
  for (std::size_t i = 0; i < gathers.num; ++i) times.push_back(gathers.all[i].times(bucket));
  gathers.num = 0;
}

}  // namespace trireme::reduce
