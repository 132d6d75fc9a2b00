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
      compute_(compute),
      queue_(queue),
      arena_(communicator.allocate(
          static_cast<std::size_t>(plan.flat_elements()) * size_bytes(dtype), "parameters")) {
  const View all = arena_.view(dtype_);
  for (std::size_t p = 0; p < plan_.parameters().size(); ++p) {
    const layout::Placement& place = plan_.placement(static_cast<ParameterIndex>(p));
    views_.push_back(all.slice(place.begin, place.elements));
  }
  for (const layout::Bucket& place : plan_.buckets()) {
    Bucket& bucket = buckets_.emplace_back();
    bucket.whole = all.slice(place.begin, place.elements);
    bucket.shards = communicator_.shards(bucket.whole);
    for (Gather& gather : bucket.gathers)
      for (EventPtr* event :
           {&gather.updated, &gather.start, &gather.end, &gather.wait_begin, &gather.wait_end})
        *event = device.make_event();
  }
}

void ParameterStore::publish(BucketIndex bucket, std::int64_t step, bool counts) {
  if (!sharded_)
    return;
  Bucket& one = at_bucket(bucket);
  one.latest = turn_of(step);
  Gather& gather = one.gathers[one.latest];
  gather.counts = counts;
  if (!overlaps_)
    compute_.record(*gather.wait_begin);
  compute_.record(*gather.updated);
  if (!cached_)
    one.shards = communicator_.shards(one.whole);
  if (!overlaps_) {
    start(bucket);
    compute_.wait(*gather.end);
    compute_.record(*gather.wait_end);
    return;
  }
  one.gathering = true;
  ++num_gathering_;
  queue_.push(*this, bucket);
}

void ParameterStore::start(BucketIndex bucket) {
  const Bucket& one = at_bucket(bucket);
  const Gather& gather = one.gathers[one.latest];
  device::Stream& stream = queue_.stream();
  stream.wait(*gather.updated);
  stream.record(*gather.start);
  communicator_.all_gather(*one.shards, bucket, stream);
  stream.record(*gather.end);
}

void ParameterStore::wait(BucketIndex bucket) {
  Bucket& one = at_bucket(bucket);
  const Gather& gather = one.gathers[one.latest];
  queue_.about_to_wait(*this, bucket);
  compute_.record(*gather.wait_begin);
  compute_.wait(*gather.end);
  compute_.record(*gather.wait_end);
  one.gathering = false;
  --num_gathering_;
}

void ParameterStore::before_use(std::span<const ParameterIndex> parameters) {
  if (num_gathering_ == 0)
    return;
  for (const ParameterIndex parameter : parameters)
    if (const BucketIndex bucket = plan_.placement(parameter).bucket; gathering(bucket))
      wait(bucket);
}

void ParameterStore::before_use_of_all() {
  for (std::size_t b = buckets_.size(); b-- > 0;)
    if (buckets_[b].gathering)
      wait(static_cast<BucketIndex>(b));
}

void ParameterStore::take(Gather& gather, BucketTimes& times) {
  if (!gather.counts)
    return;
  times.gather_start = seconds_of(*gather.start);
  times.gather_end = seconds_of(*gather.end);
  times.gather_wait_begin = seconds_of(*gather.wait_begin);
  times.gather_waited = seconds_of(*gather.wait_end) - times.gather_wait_begin;
  gather.counts = false;
}

void ParameterStore::take_times(BucketIndex bucket, std::int64_t step, BucketTimes& times) {
  constexpr auto one_back = static_cast<std::int64_t>(turns) - 1;
  take(at_bucket(bucket).gathers[turn_of(overlaps_ ? step + one_back : step)], times);
}

void ParameterStore::take_last_times(BucketIndex bucket, BucketTimes& times) {
  TRIREME_EXPECT(num_gathering_ == 0, "{} buckets are still being gathered", num_gathering_);
  Bucket& one = at_bucket(bucket);
  take(one.gathers[one.latest], times);
}

}  // namespace trireme::reduce
