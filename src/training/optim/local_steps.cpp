// SPDX-License-Identifier: Apache-2.0
#include "optim/local_steps.hpp"

#include "ops/elementwise.hpp"

namespace trireme::optim {

LocalSteps::LocalSteps(const OuterConfig& config,
                       const reduce::Engine& engine,
                       comm::Communicator& communicator)
    : config_(config) {
  const auto replica = communicator.replica();
  if (!replica)
    return;
  across_ = &replica->across;
  for (const reduce::OwnedShard& shard : engine.owned())
    gradients_.push_back(across_->shards(shard.gradient));
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
  if (across_ != nullptr)
    across_->all_reduce(*gradients_[at(bucket)], bucket, stream);
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

}  // namespace trireme::optim
