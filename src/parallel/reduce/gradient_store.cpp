// SPDX-License-Identifier: Apache-2.0
#include "reduce/gradient_store.hpp"

#include "ops/elementwise.hpp"

namespace trireme::reduce {

GradientStore::GradientStore(const layout::Plan& plan,
                             const ParallelConfig& config,
                             comm::Communicator& communicator,
                             device::Device& device,
                             comm::World* world)
    : plan_(plan),
      sharded_(config.sharded()),
      rounds_(config.gradient_dtype == GradientDType::bf16 && plan.all_ranks() > 1),
      ring_(layout::shards_gradients(config.shard) ? std::optional<layout::Ring>(plan)
                                                   : std::nullopt),
      communicator_(communicator),
      device_(device),
      compression_bytes_(static_cast<std::size_t>(compression_bytes(config, plan).held)),
      compression_(make_compression(plan_, config, communicator, world, device)) {
  allocate(config);
  for (std::size_t p = 0; p < plan_.parameters().size(); ++p) {
    const layout::Placement& place = plan_.placement(static_cast<ParameterIndex>(p));
    views_.push_back(
        find(place.bucket).slice(place.begin - plan_.bucket(place.bucket).begin, place.elements));
  }
  std::int64_t sums_begin = 0;
  for (std::size_t b = 0; b < plan_.buckets().size(); ++b) {
    const auto index = static_cast<BucketIndex>(b);
    const layout::Bucket& place = plan_.bucket(index);
    Bucket& bucket = buckets_.emplace_back();
    bucket.whole = find(index);
    bucket.wire =
        rounds_ ? wire_.view(dtype_of(config.gradient_dtype), 0, place.elements) : bucket.whole;
    find_shards(index);
    if (!config.reduces_micro_steps())
      continue;
    const std::int64_t own_elements = reduced(index).elements;
    bucket.sums = sums_.view(DType::f32).slice(sums_begin, own_elements);
    sums_begin += own_elements;
  }
}

void GradientStore::allocate(const ParallelConfig& config) {
  const auto bytes = [](std::int64_t elements, DType dtype) {
    return static_cast<std::size_t>(elements) * size_bytes(dtype);
  };
  const std::size_t all_bytes =
      bytes(ring_ ? ring_->elements() : plan_.flat_elements(), DType::f32);
  // Only memory that is sent is allocated from the communicator.
  if (rounds_ || compression_)
    arena_ = device_.allocate(all_bytes, "gradients");
  else
    arena_ = communicator_.allocate(all_bytes, "gradients");
  if (rounds_)
    wire_ = communicator_.allocate(bytes(plan_.largest_bucket(), dtype_of(config.gradient_dtype)),
                                   "rounded gradients");
  if (config.reduces_micro_steps())
    sums_ =
        device_.allocate(bytes(plan_.owned_elements() * (sharded_ ? 1 : plan_.ranks()), DType::f32),
                         "sums of micro-steps");
}

View GradientStore::find(BucketIndex bucket) const {
  const layout::Bucket& place = plan_.bucket(bucket);
  return all().slice(ring_ ? ring_->begin(bucket) : place.begin, place.elements);
}

View GradientStore::reduced(BucketIndex bucket) const {
  const View whole = buckets_[at(bucket)].whole;
  const std::int64_t shard = plan_.bucket(bucket).shard_elements;
  return sharded_ ? whole.slice(communicator_.rank() * shard, shard) : whole;
}

View GradientStore::own(BucketIndex bucket) const {
  const View sums = buckets_[at(bucket)].sums;
  return sums.elements > 0 ? sums : reduced(bucket);
}

void GradientStore::find_shards(BucketIndex bucket) {
  Bucket& one = buckets_[at(bucket)];
  if (!compression_)
    one.shards = communicator_.shards(one.wire);
}

void GradientStore::reduce(BucketIndex bucket, bool first, device::Stream& stream) {
  const Bucket& one = buckets_[at(bucket)];
  const View result = reduced(bucket);
  if (rounds_)
    run(ops::Cast{.to = one.wire, .from = one.whole}, stream);
  if (compression_)
    compression_->reduce(bucket, one.whole, stream);
  else if (sharded_)
    communicator_.reduce_scatter(*one.shards, bucket, stream);
  else
    communicator_.all_reduce(*one.shards, bucket, stream);
  if (rounds_)
    run(ops::Cast{.to = result, .from = sharded_ ? one.shards->own : one.wire}, stream);
  if (one.sums.elements == 0)
    return;
  if (first)
    device_.copy(one.sums, result, stream);
  else
    run(ops::Add{.sum = one.sums, .term = result}, stream);
}

}  // namespace trireme::reduce
