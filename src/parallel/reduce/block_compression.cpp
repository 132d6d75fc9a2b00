// SPDX-License-Identifier: Apache-2.0
#include "reduce/block_compression.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.hpp"

#include "ops/block_codes.hpp"
#include "ops/elementwise.hpp"

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

bool has_blocks(GradientDType dtype) {
  return dtype_of(dtype) == DType::u8;
}

/// Bytes of encoded elements. Requires: whole blocks, if the dtype has blocks.
std::int64_t bytes_of(GradientDType dtype, std::int64_t elements) {
  return has_blocks(dtype) ? ops::coded_bytes(code_of(dtype), elements)
                           : elements * static_cast<std::int64_t>(size_bytes(dtype_of(dtype)));
}

}  // namespace

CodedBuckets coded_buckets(const ParallelConfig& config, const layout::Plan& plan) {
  CodedBuckets buckets{.dtype = config.gradient_dtype,
                       .error_feedback = config.error_feedback,
                       .sharded = config.sharded(),
                       .ranks = plan.ranks(),
                       .shares = {}};
  for (const layout::Bucket& bucket : plan.buckets())
    buckets.shares.push_back(bucket.shard_elements);
  return buckets;
}

CompressionBytes CodedBuckets::bytes() const {
  const std::int64_t all = std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
  const std::int64_t errors = error_feedback ? all * (ranks + (sharded ? 0 : 1)) : 0;
  const auto carried = errors * static_cast<std::int64_t>(sizeof(float));
  // fp32 is sent from where it is, and its own share is not received.
  const int buffered = dtype == GradientDType::fp32 ? ranks - 1 : 2 * ranks;
  return {.held = carried + buffered * bytes_of(dtype, std::ranges::max(shares)),
          .carried = carried};
}

std::int64_t CodedBuckets::sent_bytes(std::int64_t share) const {
  return bytes_of(dtype, share) * (ranks - 1) * (sharded ? 1 : 2);
}

BlockCompression::BlockCompression(const CodedBuckets& buckets,
                                   std::vector<std::vector<Part>> parts,
                                   const std::vector<View>& values,
                                   comm::Communicator& communicator,
                                   comm::World& world,
                                   device::Device& device)
    : parts_(std::move(parts)),
      dtype_(buckets.dtype),
      sharded_(buckets.sharded),
      ranks_(buckets.ranks) {
  const std::vector<int>& owners = parts_.front().front().owners;
  own_ = static_cast<int>(std::ranges::find(owners, communicator.rank()) - owners.begin());
  const CompressionBytes bytes = buckets.bytes();
  const auto codes = static_cast<std::size_t>(bytes.held - bytes.carried);
  if (dtype_ != GradientDType::fp32)
    sent_ = device.allocate(codes / 2, "encoded gradients");
  received_ = device.allocate(codes - sent_.bytes(), "encoded gradients of other ranks");
  begins_.push_back(0);
  for (const std::int64_t share : buckets.shares) begins_.push_back(begins_.back() + share);
  if (buckets.error_feedback) {
    const std::size_t own = static_cast<std::size_t>(begins_.back()) * sizeof(float);
    errors_ = device.allocate(own * static_cast<std::size_t>(ranks_), "errors of gradients");
    if (!sharded_)
      sum_errors_ = device.allocate(own, "errors of sums");
  }
  std::vector<comm::MessageGroup> groups(parts_.size() * (sharded_ ? 1 : 2));
  for (std::size_t b = 0; b < parts_.size(); ++b)
    find_messages(static_cast<BucketIndex>(b), values.empty() ? View() : values[b], groups);
  transfer_ = comm::make_transfer(world, communicator, groups);
}

View BlockCompression::values_of(View bucket, const Part& part, int owner) const {
  return bucket.empty() ? bucket : bucket.slice(part.begin + owner * share(part), share(part));
}

View BlockCompression::codes_of(const device::Buffer& codes, const Part& part, int owner) const {
  return codes.view(DType::u8).slice(bytes_of(dtype_, part.begin + owner * share(part)),
                                     bytes_of(dtype_, share(part)));
}

View BlockCompression::errors(BucketIndex bucket) const {
  const std::int64_t begin = begins_[at(bucket)], end = begins_[at(bucket) + 1];
  return errors_.bytes() == 0
             ? View()
             : errors_.view(DType::f32).slice(ranks_ * begin, ranks_ * (end - begin));
}

View BlockCompression::sum_error(BucketIndex bucket, const Part& part) const {
  return sum_errors_.bytes() == 0
             ? View()
             : sum_errors_.view(DType::f32)
                   .slice(begins_[at(bucket)] + part.begin / ranks_, share(part));
}

void BlockCompression::find_messages(BucketIndex bucket,
                                     View values,
                                     std::vector<comm::MessageGroup>& groups) const {
  const bool whole = dtype_ == GradientDType::fp32;
  for (const Part& part : parts_[at(bucket)])
    for (int owner = 0; owner < ranks_; ++owner) {
      if (owner == own_)
        continue;
      const int peer = part.owners[static_cast<std::size_t>(owner)];
      const View sent = whole ? values_of(values, part, owner) : codes_of(sent_, part, owner);
      comm::MessageGroup& terms = groups[at(bucket)];
      terms.outgoing.push_back({peer, sent});
      terms.incoming.push_back(
          {peer, whole ? received_values(part, owner) : codes_of(received_, part, owner)});
      if (sharded_)
        continue;
      // What was sent is no longer needed, and the rank's own share receives nothing.
      comm::MessageGroup& sums = groups[parts_.size() + at(bucket)];
      sums.outgoing.push_back(
          {peer, whole ? values_of(values, part, own_) : codes_of(received_, part, own_)});
      sums.incoming.push_back({peer, sent});
    }
}

void BlockCompression::encode(View codes, View values, View error, device::Stream& stream) const {
  if (has_blocks(dtype_))
    return run(
        ops::EncodeBlocks{
            .codes = codes, .values = values, .error = error, .code = code_of(dtype_)},
        stream);
  run(ops::Cast{.to = {codes.data, values.elements, dtype_of(dtype_)}, .from = values}, stream);
}

void BlockCompression::decode(
    View sum, View codes, bool first, View scratch, device::Stream& stream) const {
  if (has_blocks(dtype_))
    return run(
        ops::DecodeBlocks{.sum = sum, .codes = codes, .code = code_of(dtype_), .adds = !first},
        stream);
  const View term{codes.data, sum.elements, dtype_of(dtype_)};
  run(ops::Cast{.to = first ? sum : scratch, .from = term}, stream);
  if (!first)
    run(ops::Add{.sum = sum, .term = scratch}, stream);
}

void BlockCompression::add_terms(const Part& part, View values, device::Stream& stream) const {
  // What other owners add is encoded by now.
  const View scratch = values_of(values, part, own_ == 0 ? 1 : 0);
  for (int owner = 0; owner < ranks_; ++owner)
    decode(values_of(values, part, own_), codes_of(owner == own_ ? sent_ : received_, part, owner),
           owner == 0, scratch, stream);
}

View BlockCompression::received_values(const Part& part, int owner) const {
  const int slot = owner < own_ ? owner : owner - 1;
  return received_.view(DType::f32)
      .slice(part.begin / ranks_ * (ranks_ - 1) + slot * share(part), share(part));
}

void BlockCompression::add_values(const Part& part, View values, device::Stream& stream) const {
  const auto term = [&](int owner) { return received_values(part, owner); };
  const View sum = values_of(values, part, own_);
  for (int owner = 1; owner < own_; ++owner)
    run(ops::Add{.sum = term(0), .term = term(owner)}, stream);
  if (own_ > 0)
    run(ops::Add{.sum = sum, .term = term(0)}, stream);
  for (int owner = own_ + 1; owner < ranks_; ++owner)
    run(ops::Add{.sum = sum, .term = term(owner)}, stream);
}

void BlockCompression::reduce(BucketIndex bucket, View values, device::Stream& stream) {
  const std::vector<Part>& parts = parts_[at(bucket)];
  if (dtype_ == GradientDType::fp32) {
    transfer_->enqueue(at(bucket), comm::Direction::send, stream);
    for (const Part& part : parts) add_values(part, values, stream);
    return transfer_->enqueue(parts_.size() + at(bucket), comm::Direction::send, stream);
  }
  for (const Part& part : parts)
    for (int owner = 0; owner < ranks_; ++owner)
      encode(codes_of(sent_, part, owner), values_of(values, part, owner),
             values_of(errors(bucket), part, owner), stream);
  transfer_->enqueue(at(bucket), comm::Direction::send, stream);
  for (const Part& part : parts) add_terms(part, values, stream);
  if (sharded_)
    return;
  for (const Part& part : parts)
    encode(codes_of(received_, part, own_), values_of(values, part, own_), sum_error(bucket, part),
           stream);
  transfer_->enqueue(parts_.size() + at(bucket), comm::Direction::send, stream);
  for (const Part& part : parts)
    for (int owner = 0; owner < ranks_; ++owner)
      decode(values_of(values, part, owner),
             codes_of(owner == own_ ? received_ : sent_, part, owner), true, {}, stream);
}

std::vector<Carried> BlockCompression::carried() const {
  std::vector<Carried> all;
  for (std::size_t b = 0; b < parts_.size(); ++b) {
    const auto bucket = static_cast<BucketIndex>(b);
    if (const View own = errors(bucket); !own.empty())
      all.push_back({"error", bucket, 0, own, Carried::Holder::rank, own_, ranks_});
    for (const Part& part : parts_[b])
      if (const View own = sum_error(bucket, part); !own.empty())
        all.push_back({"sum_error", bucket, part.begin + own_ * own.elements, own});
  }
  return all;
}

}  // namespace trireme::reduce
