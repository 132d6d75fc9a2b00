// SPDX-License-Identifier: Apache-2.0
// A store of gradients alone, without an engine.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "reduce/gradient_store.hpp"
#include "reduce/thread_ranks.hpp"

namespace trireme::testing {

/// The gradients of a store of one bucket per parameter.
class OneStore {
 public:
  OneStore(ThreadRank& rank,
           const reduce::ParallelConfig& config,
           std::vector<layout::Parameter> parameters)
      : plan_(std::move(parameters), {rank.world.size(), 1, layout::Padding::aligned}),
        store(plan_, config, rank.communicator, *rank.device, &rank.world),
        stream_(rank.compute.get()) {}

  /// Sums `values` over the ranks in the first bucket.
  std::span<const float> sum(std::span<const float> values) {
    std::ranges::copy(values, store.bucket({}).as<float>());
    store.reduce({}, true, *stream_);
    return {store.own({}).as<float>(), static_cast<std::size_t>(store.own({}).elements)};
  }
  [[nodiscard]] const layout::Plan& plan() const { return plan_; }

 private:
  const layout::Plan plan_;

 public:
  reduce::GradientStore store;

 private:
  device::Stream* stream_;
};

}  // namespace trireme::testing
