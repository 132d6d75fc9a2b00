// SPDX-License-Identifier: Apache-2.0
#include "optim/local_steps.hpp"

#include <utility>

#include "ops/elementwise.hpp"

#include "reduce/block_compression.hpp"

namespace trireme::optim {
namespace {

/// Of a rank's shards, of which each replica adds up a share.
reduce::CodedBuckets coded_shards(const OuterConfig& config, const layout::Plan& plan) {
  reduce::CodedBuckets shards{.dtype = config.dtype,
                              .error_feedback = config.encodes(),
                              .ranks = plan.replicas(),
                              .shares = {}};
  for (const layout::Bucket& bucket : plan.buckets())
    shards.shares.push_back(bucket.shard_elements / plan.replicas());
  return shards;
}

}  // namespace

LocalSteps::LocalSteps(const OuterConfig& config,
                       const reduce::Engine& engine,
                       comm::Communicator& communicator,
                       comm::World& world,
                       device::Device& device)
    : config_(config), engine_(engine) {
  const auto replica = communicator.replica();
  if (!replica)
    return;
  const layout::Plan& plan = engine_.plan();
  std::vector<std::vector<layout::SharedPart>> parts;
  std::vector<View> changes;
  for (std::size_t b = 0; b < plan.buckets().size(); ++b) {
    parts.push_back(plan.shared_parts(static_cast<BucketIndex>(b), world.rank()));
    changes.push_back(engine_.owned()[b].gradient);
  }
  exchange_ = std::make_unique<reduce::BlockCompression>(
      coded_shards(config_, plan), std::move(parts), changes, replica->everywhere, world, device);
}

std::vector<reduce::Carried> LocalSteps::carried() const {
  if (!exchange_)
    return {};
  auto all = exchange_->carried();
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
  if (exchange_)
    exchange_->reduce(bucket, engine_.owned()[at(bucket)].gradient, stream);
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
  if (!config.on() || plan.replicas() == 1)
    return {};
  return coded_shards(config, plan).bytes();
}

std::int64_t averaged_bytes(const OuterConfig& config, const layout::Plan& plan) {
  if (!config.on() || plan.replicas() == 1)
    return 0;
  const reduce::CodedBuckets shards = coded_shards(config, plan);
  std::int64_t bytes = 0;
  for (const std::int64_t share : shards.shares) bytes += shards.sent_bytes(share);
  return bytes;
}

}  // namespace trireme::optim
