// SPDX-License-Identifier: Apache-2.0
#include "reduce/block_compression.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

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

CodedBuckets coded_buckets(const ParallelConfig& config, const layout::Plan& plan) {
  CodedBuckets buckets{.dtype = config.gradient_dtype,
                       .error_feedback = config.error_feedback,
                       .sharded = config.sharded(),
                       .ranks = plan.ranks(),
                       .shards = {}};
  for (const layout::Bucket& bucket : plan.buckets())
    buckets.shards.push_back(bucket.shard_elements);
  return buckets;
}

CompressionBytes CodedBuckets::bytes() const {
  const std::int64_t all = std::accumulate(shards.begin(), shards.end(), std::int64_t{0});
  const std::int64_t errors = error_feedback ? all * (ranks + (sharded ? 0 : 1)) : 0;
  const auto carried = errors * static_cast<std::int64_t>(sizeof(float));
  return {.held = carried + 2 * coded_bytes(code_of(dtype), ranks * std::ranges::max(shards)),
          .carried = carried};
}

std::int64_t CodedBuckets::sent_bytes(std::int64_t shard) const {
  return coded_bytes(code_of(dtype), shard) * (ranks - 1) * (sharded ? 1 : 2);
}

BlockCompression::BlockCompression(CodedBuckets buckets,
                                   comm::Communicator& communicator,
                                   comm::World& world,
                                   device::Device& device)
    : buckets_(std::move(buckets)), code_(code_of(buckets_.dtype)), rank_(communicator.rank()) {
  const auto& shards = buckets_.shards;
  const auto codes =
      static_cast<std::size_t>(coded_bytes(code_, buckets_.ranks * std::ranges::max(shards)));
  sent_ = device.allocate(codes, "encoded gradients");
  received_ = device.allocate(codes, "encoded gradients of other ranks");
  begins_.push_back(0);
  for (const std::int64_t shard : shards) begins_.push_back(begins_.back() + shard);
  if (buckets_.error_feedback) {
    const std::size_t own = static_cast<std::size_t>(begins_.back()) * sizeof(float);
    errors_ =
        device.allocate(own * static_cast<std::size_t>(buckets_.ranks), "errors of gradients");
    if (!buckets_.sharded)
      sum_errors_ = device.allocate(own, "errors of sums");
  }
  std::vector<comm::MessageGroup> groups(shards.size() * (buckets_.sharded ? 1 : 2));
  for (std::size_t b = 0; b < shards.size(); ++b)
    find_messages(static_cast<BucketIndex>(b), groups);
  transfer_ = comm::make_transfer(world, communicator, groups);
}

View BlockCompression::part(const device::Buffer& codes, BucketIndex bucket, int rank) const {
  const std::int64_t bytes = coded_bytes(code_, buckets_.shards[at(bucket)]);
  return codes.view(DType::u8).slice(rank * bytes, bytes);
}

View BlockCompression::error(BucketIndex bucket) const {
  return errors_.bytes() == 0 ? View()
                              : errors_.view(DType::f32)
                                    .slice(buckets_.ranks * begins_[at(bucket)],
                                           buckets_.ranks * buckets_.shards[at(bucket)]);
}

View BlockCompression::sum_error(BucketIndex bucket) const {
  return sum_errors_.bytes() == 0
             ? View()
             : sum_errors_.view(DType::f32).slice(begins_[at(bucket)], buckets_.shards[at(bucket)]);
}

void BlockCompression::find_messages(BucketIndex bucket,
                                     std::vector<comm::MessageGroup>& groups) const {
  for (int peer = 0; peer < buckets_.ranks; ++peer) {
    if (peer == rank_)
      continue;
    comm::MessageGroup& terms = groups[at(bucket)];
    terms.outgoing.push_back({peer, part(sent_, bucket, peer)});
    terms.incoming.push_back({peer, part(received_, bucket, peer)});
    if (buckets_.sharded)
      continue;
    // What was sent is no longer needed, and the rank's own part receives nothing.
    comm::MessageGroup& sums = groups[buckets_.shards.size() + at(bucket)];
    sums.outgoing.push_back({peer, part(received_, bucket, rank_)});
    sums.incoming.push_back({peer, part(sent_, bucket, peer)});
  }
}

void BlockCompression::reduce(BucketIndex bucket, View gradients, device::Stream& stream) {
  const std::int64_t shard = buckets_.shards[at(bucket)];
  const auto of = [shard](View whole, int rank) {
    return whole.empty() ? whole : whole.slice(rank * shard, shard);
  };
  for (int rank = 0; rank < buckets_.ranks; ++rank)
    run(EncodeBlocks{.codes = part(sent_, bucket, rank),
                     .values = of(gradients, rank),
                     .error = of(error(bucket), rank),
                     .code = code_},
        stream);
  transfer_->enqueue(at(bucket), comm::Direction::send, stream);
  const View sum = of(gradients, rank_);
  for (int rank = 0; rank < buckets_.ranks; ++rank)
    run(DecodeBlocks{.sum = sum,
                     .codes = part(rank == rank_ ? sent_ : received_, bucket, rank),
                     .code = code_,
                     .adds = rank > 0},
        stream);
  if (buckets_.sharded)
    return;
  run(EncodeBlocks{.codes = part(received_, bucket, rank_),
                   .values = sum,
                   .error = sum_error(bucket),
                   .code = code_},
      stream);
  transfer_->enqueue(buckets_.shards.size() + at(bucket), comm::Direction::send, stream);
  for (int rank = 0; rank < buckets_.ranks; ++rank)
    run(DecodeBlocks{.sum = of(gradients, rank),
                     .codes = part(rank == rank_ ? received_ : sent_, bucket, rank),
                     .code = code_},
        stream);
}

std::vector<Carried> BlockCompression::carried() const {
  std::vector<Carried> all;
  for (std::size_t b = 0; b < buckets_.shards.size(); ++b) {
    const auto bucket = static_cast<BucketIndex>(b);
    if (const View own = error(bucket); !own.empty())
      all.push_back({"error", bucket, 0, own, Carried::Holder::rank, rank_, buckets_.ranks});
    if (const View own = sum_error(bucket); !own.empty())
      all.push_back({"sum_error", bucket, rank_ * own.elements, own});
  }
  return all;
}

}  // namespace trireme::reduce
