// SPDX-License-Identifier: Apache-2.0
// Norms of gradient, weights and update by layer, measured while the optimizer takes a step.
//
// Each is an order-free sum of squares (ops/optimizer/order_free_sum.hpp), so its bits do not
// depend on ranks, shards or buckets, and the norm of the whole gradient is the sum of those of its
// layers, to the bit. Gradients are those of the whole step before clipping; weights are the fp32
// masters after the step; the update is their difference to those before it. In a measured step
// pieces are updated in chunks, whose masters are copied before: on a CPU these stay in the caches,
// so that no norm costs memory traffic.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/view.hpp"
#include "device/device.hpp"
#include "layout/plan.hpp"

#include "ops/optimizer/order_free_sum.hpp"
#include "ops/optimizer/reductions.hpp"

#include "comm/control/world.hpp"

#include "optim/rule.hpp"

namespace trireme::optim {

struct LayerNorm {
  double gradient = 0, weight = 0, update = 0;
};

/// As the optimizer: the norms of a step must be read before the step after the next one begins.
class LayerNorms {
 public:
  /// `plan` must outlive the object. `chunk`: elements, 1 MiB on a CPU and 16 MiB on a GPU if 0.
  LayerNorms(const layout::Plan& plan, device::Device& device, std::int64_t chunk = 0);

  /// Begins step number `step`, whose gradients count times `gradient_scale`.
  void begin(std::int64_t step, double gradient_scale, device::Stream& stream);
  /// A piece of a summed gradient, which no other rank adds.
  void add_gradient(ParameterIndex parameter, ConstView gradient, device::Stream& stream);
  /// Adds the squares of all these gradients to `total`.
  void add_gradients_to(ops::StreamSum& total, device::Stream& stream);
  /// Updates by `rule`, and adds what changed in `own`, the pieces that no other rank adds.
  void update(Rule& rule,
              const Update& update,
              std::span<const layout::Piece> own,
              const ops::GradientNorm& norm,
              device::Stream& stream);
  /// Copies the sums to the host.
  void fetch(device::Stream& stream);
  /// Of step `step`, by layout::Parameter::group. Collective. Requires: the host has waited for
  /// fetch().
  std::vector<LayerNorm> norms(std::int64_t step, comm::World& world);

 private:
  enum Kind : std::size_t { gradient_sum, weight_sum, update_sum, num_sums };
  struct Step {
    double gradient_scale = 1;
    std::vector<std::unique_ptr<ops::StreamSum>> sums;  // num_sums of each layer
  };
  ops::StreamSum& sum_of(ParameterIndex parameter, Kind kind) {
    const auto layer = static_cast<std::size_t>(plan_.parameter(parameter).group);
    return *now_->sums[layer * num_sums + kind];
  }

  const layout::Plan& plan_;
  std::array<Step, 2> steps_;  // of even and odd steps
  Step* now_ = steps_.data();
  device::Buffer before_;  // masters of a chunk
};

}  // namespace trireme::optim
