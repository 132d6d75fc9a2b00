// SPDX-License-Identifier: Apache-2.0
#include "reduce/block_compression.hpp"

#include "base/error.hpp"

namespace trireme::reduce {

namespace {

ops::BlockCode code_of(GradientDType dtype) {
  switch (dtype) {
    case GradientDType::int8:
      return ops::BlockCode::int8;
    case GradientDType::fp8:
      return ops::BlockCode::fp8;
    case GradientDType::top4:
      return ops::BlockCode::top4;
    case GradientDType::top1:
      return ops::BlockCode::top1;
    case GradientDType::fp32:
    case GradientDType::bf16:
      break;
  }
  TRIREME_EXPECT(false, "blocks of codes with gradients in {}", word(dtype));
}

}  // namespace

using ops::DecodeBlocks, ops::EncodeBlocks, ops::coded_bytes;

BlockCompression::BlockCompression(const layout::Plan& plan,
                                   const ParallelConfig& config,
                                   comm::Communicator& communicator,
                                   comm::World& world,
                                   device::Device& device)
    : plan_(plan),
      code_(code_of(config.gradient_dtype)),
      sharded_(config.sharded()),
      rank_(communicator.rank()) {
  const auto codes = static_cast<std::size_t>(coded_bytes(code_, plan_.largest_bucket()));
  sent_ = device.allocate(codes, "encoded gradients");
  received_ = device.allocate(codes, "encoded gradients of other ranks");
  if (config.error_feedback) {
    const auto fp32_bytes = [](std::int64_t elements) {
      return static_cast<std::size_t>(elements) * sizeof(float);
    };
    errors_ = device.allocate(fp32_bytes(plan_.flat_elements()), "errors of gradients");
    if (!sharded_)
      sum_errors_ = device.allocate(fp32_bytes(plan_.owned_elements()), "errors of sums");
  }
  std::vector<comm::MessageGroup> groups(plan_.buckets().size() * (sharded_ ? 1 : 2));
  for (std::size_t b = 0; b < plan_.buckets().size(); ++b)
    find_messages(static_cast<BucketIndex>(b), groups);
  transfer_ = comm::make_transfer(world, communicator, groups);
}

View BlockCompression::part(const device::Buffer& codes,
                            const layout::Bucket& bucket,
                            int rank) const {
  const std::int64_t bytes = coded_bytes(code_, bucket.shard_elements);
  return codes.view(DType::u8).slice(rank * bytes, bytes);
}

View BlockCompression::error(BucketIndex bucket) const {
  const layout::Bucket& place = plan_.bucket(bucket);
  return errors_.bytes() == 0 ? View()
                              : errors_.view(DType::f32).slice(place.begin, place.elements);
}

View BlockCompression::sum_error(BucketIndex bucket) const {
  return sum_errors_.bytes() == 0
             ? View()
             : sum_errors_.view(DType::f32)
                   .slice(plan_.owned_begin(bucket), plan_.bucket(bucket).shard_elements);
}

void BlockCompression::find_messages(BucketIndex bucket,
                                     std::vector<comm::MessageGroup>& groups) const {
  const layout::Bucket& place = plan_.bucket(bucket);
  for (int peer = 0; peer < plan_.ranks(); ++peer) {
    if (peer == rank_)
      continue;
    comm::MessageGroup& terms = groups[at(bucket)];
    terms.outgoing.push_back({peer, part(sent_, place, peer)});
    terms.incoming.push_back({peer, part(received_, place, peer)});
    if (sharded_)
      continue;
    // What was sent is no longer needed, and the rank's own part receives nothing.
    comm::MessageGroup& sums = groups[plan_.buckets().size() + at(bucket)];
    sums.outgoing.push_back({peer, part(received_, place, rank_)});
    sums.incoming.push_back({peer, part(sent_, place, peer)});
  }
}

void BlockCompression::reduce(BucketIndex bucket, View gradients, device::Stream& stream) {
  const layout::Bucket& place = plan_.bucket(bucket);
  const std::int64_t shard = place.shard_elements;
  const auto of = [shard](View whole, int rank) {
    return whole.empty() ? whole : whole.slice(rank * shard, shard);
  };
  for (int rank = 0; rank < plan_.ranks(); ++rank)
    run(EncodeBlocks{.codes = part(sent_, place, rank),
                     .values = of(gradients, rank),
                     .error = of(error(bucket), rank),
                     .code = code_},
        stream);
  transfer_->enqueue(at(bucket), comm::Direction::send, stream);
  const View sum = of(gradients, rank_);
  for (int rank = 0; rank < plan_.ranks(); ++rank)
    run(DecodeBlocks{.sum = sum,
                     .codes = part(rank == rank_ ? sent_ : received_, place, rank),
                     .code = code_,
                     .adds = rank > 0},
        stream);
  if (sharded_)
    return;
  run(EncodeBlocks{.codes = part(received_, place, rank_),
                   .values = sum,
                   .error = sum_error(bucket),
                   .code = code_},
      stream);
  transfer_->enqueue(plan_.buckets().size() + at(bucket), comm::Direction::send, stream);
  for (int rank = 0; rank < plan_.ranks(); ++rank)
    run(DecodeBlocks{.sum = of(gradients, rank),
                     .codes = part(rank == rank_ ? received_ : sent_, place, rank),
                     .code = code_},
        stream);
}

std::vector<Carried> BlockCompression::carried() const {
  std::vector<Carried> all;
  for (std::size_t b = 0; b < plan_.buckets().size(); ++b) {
    const auto bucket = static_cast<BucketIndex>(b);
    if (const View own = error(bucket); !own.empty())
      all.push_back({"error", bucket, 0, own, Carried::Holder::rank});
    if (const View own = sum_error(bucket); !own.empty())
      all.push_back({"sum_error", bucket, rank_ * own.elements, own});
  }
  return all;
}

CompressionBytes BlockCompression::bytes(const ParallelConfig& config, const layout::Plan& plan) {
  const std::int64_t errors =
      config.error_feedback ? plan.flat_elements() + (config.sharded() ? 0 : plan.owned_elements())
                            : 0;
  const auto carried = errors * static_cast<std::int64_t>(sizeof(float));
  return {.held = carried + 2 * coded_bytes(code_of(config.gradient_dtype), plan.largest_bucket()),
          .carried = carried};
}

std::int64_t BlockCompression::sent_bytes(const ParallelConfig& config,
                                          const layout::Plan& plan,
                                          const layout::Bucket& bucket) {
  return coded_bytes(code_of(config.gradient_dtype), bucket.shard_elements) * (plan.ranks() - 1) *
         (config.sharded() ? 1 : 2);
}

}  // namespace trireme::reduce
