// SPDX-License-Identifier: Apache-2.0
#include "optim/local_steps.hpp"

#include "ops/elementwise.hpp"

#include "reduce/block_compression.hpp"

namespace trireme::optim {
namespace {

/// A rank's shards of the plan, of which each replica adds up a part.
reduce::CodedBuckets coded_shards(const OuterConfig& config, const layout::Plan& plan) {
  reduce::CodedBuckets shards{.dtype = config.dtype, .ranks = plan.replicas(), .shards = {}};
  for (const layout::Bucket& bucket : plan.buckets())
    shards.shards.push_back(bucket.shard_elements / plan.replicas());
  return shards;
}

}  // namespace

LocalSteps::LocalSteps(const OuterConfig& config,
                       const reduce::Engine& engine,
                       comm::Communicator& communicator,
                       device::Device& device)
    : config_(config), engine_(engine) {
  const auto replica = communicator.replica();
  if (!replica)
    return;
  across_ = &replica->across;
  if (config_.encodes()) {
    compression_ = std::make_unique<reduce::BlockCompression>(coded_shards(config_, engine_.plan()),
                                                              *across_, replica->peers, device);
    return;
  }
  if (config_.dtype == reduce::GradientDType::bf16)
    wire_ = device.allocate(static_cast<std::size_t>(outer_memory(config_, engine_.plan()).held),
                            "rounded changes of weights");
  for (const reduce::OwnedShard& shard : engine_.owned())
    sent_.push_back(across_->shards(
        wire_.bytes() > 0 ? wire_.view(DType::bf16, 0, shard.gradient.elements) : shard.gradient));
}

void LocalSteps::add_over_replicas(BucketIndex bucket, device::Stream& stream) {
  const View changes = engine_.owned()[at(bucket)].gradient;
  if (across_ == nullptr)
    return;
  if (compression_) {
    compression_->reduce(bucket, changes, stream);
    return;
  }
  const comm::Shards& sent = *sent_[at(bucket)];
  if (wire_.bytes() > 0)
    run(ops::Cast{.to = sent.full, .from = changes}, stream);
  across_->all_reduce(sent, bucket, stream);
  if (wire_.bytes() > 0)
    run(ops::Cast{.to = changes, .from = sent.full}, stream);
}

std::vector<reduce::Carried> LocalSteps::carried() const {
  if (!compression_)
    return {};
  auto all = compression_->carried();
  for (reduce::Carried& one : all) {
    one.name = "outer_" + one.name;
    one.begin += engine_.rank() * engine_.plan().bucket(one.bucket).shard_elements;
  }
  return all;
}

void LocalSteps::begin(const Update& piece, std::size_t slots, device::Stream& stream) {
  stream.device().copy(piece.state[slots - 2], piece.state.front(), stream);
}

void LocalSteps::average(BucketIndex bucket,
                         std::span<const Update> pieces,
                         std::size_t slots,
                         float weight,
                         device::Stream& stream) {
  const auto rate = static_cast<float>(config_.rate),
             momentum = static_cast<float>(config_.momentum);
  for (const Update& piece : pieces) {
    stream.device().copy(piece.gradient, piece.state[slots - 2], stream);
    run(ops::Add{.sum = piece.gradient, .term = piece.state.front(), .factor = -1}, stream);
    run(ops::Add{.sum = piece.gradient, .term = piece.gradient, .factor = weight - 1}, stream);
  }
  add_over_replicas(bucket, stream);
  for (const Update& piece : pieces) {
    const View master = piece.state.front(), before = piece.state[slots - 2],
               mean = piece.state[slots - 1];
    run(ops::Add{.sum = mean, .term = mean, .factor = momentum - 1}, stream);
    run(ops::Add{.sum = mean, .term = piece.gradient}, stream);
    stream.device().copy(master, before, stream);
    run(ops::Add{.sum = master, .term = piece.gradient, .factor = -rate}, stream);
    run(ops::Add{.sum = master, .term = mean, .factor = -rate * momentum}, stream);
  }
}

reduce::CompressionBytes outer_memory(const OuterConfig& config, const layout::Plan& plan) {
  if (!config.on() || plan.replicas() == 1 || config.dtype == reduce::GradientDType::fp32)
    return {};
  if (config.encodes())
    return coded_shards(config, plan).bytes();
  return {.held = plan.largest_bucket() / plan.ranks() *
                  static_cast<std::int64_t>(size_bytes(DType::bf16))};
}

std::int64_t averaged_bytes(const OuterConfig& config, const layout::Plan& plan) {
  if (!config.on() || plan.replicas() == 1)
    return 0;
  const reduce::CodedBuckets shards = coded_shards(config, plan);
  std::int64_t bytes = 0;
  for (const std::int64_t shard : shards.shards)
    bytes += config.encodes() ? shards.sent_bytes(shard)
                              : 2 * (plan.replicas() - 1) * shard *
                                    static_cast<std::int64_t>(size_bytes(dtype_of(config.dtype)));
  return bytes;
}

}  // namespace trireme::optim
