// SPDX-License-Identifier: Apache-2.0
#include "optim/local_steps.hpp"

#include <algorithm>

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

void LocalSteps::sum_over_replicas(BucketIndex bucket, device::Stream& stream) {
  if (across_ != nullptr)
    across_->all_reduce(*gradients_[at(bucket)], bucket, stream);
}

void LocalSteps::average(BucketIndex bucket,
                         std::span<const Update> pieces,
                         std::size_t slots,
                         device::Stream& stream) {
  const auto share = across_ == nullptr ? 1.0F : 1.0F / static_cast<float>(across_->size());
  const auto rate = static_cast<float>(config_.rate),
             momentum = static_cast<float>(config_.momentum);
  for (const Update& piece : pieces) {
    stream.device().copy(piece.gradient, piece.state[slots - 2], stream);
    run(ops::Add{.sum = piece.gradient, .term = piece.state.front(), .factor = -1}, stream);
    run(ops::Add{.sum = piece.gradient, .term = piece.gradient, .factor = share - 1}, stream);
  }
  sum_over_replicas(bucket, stream);
  for (const Update& piece : pieces) {
    const View master = piece.state.front(), before = piece.state[slots - 2],
               mean = piece.state[slots - 1];
    run(ops::Add{.sum = mean, .term = mean, .factor = momentum - 1}, stream);
    run(ops::Add{.sum = mean, .term = piece.gradient}, stream);
    stream.device().copy(master, before, stream);
    run(ops::Add{.sum = master, .term = piece.gradient, .factor = -rate}, stream);
    run(ops::Add{.sum = master, .term = mean, .factor = -rate * momentum}, stream);
  }
  for (std::size_t slot = 1; across_ != nullptr && slot + 2 < slots; ++slot) {
    const auto has_slot = [=](const Update& piece) { return !piece.state[slot].empty(); };
    if (std::ranges::none_of(pieces, has_slot))
      continue;  // in all replicas, which own the same pieces
    for (const Update& piece : pieces)
      if (has_slot(piece)) {
        run(ops::Cast{.to = piece.gradient, .from = piece.state[slot]}, stream);
        run(ops::Add{.sum = piece.gradient, .term = piece.gradient, .factor = share - 1}, stream);
      }
    sum_over_replicas(bucket, stream);
    for (const Update& piece : pieces)
      if (has_slot(piece))
        run(ops::Cast{.to = piece.state[slot], .from = piece.gradient}, stream);
  }
}

}  // namespace trireme::optim
