// SPDX-License-Identifier: Apache-2.0
// Norms of gradient, weights and update by layer, measured while the optimizer takes a step.
//
// Each is an order-free sum of squares (ops/optimizer/order_free_sum.hpp), so its bits do not depend
// on ranks, shards or buckets. Gradients are those of the whole step before clipping; weights are
// the fp32 masters after the step; the update is their difference to those before it. In a measured
// step pieces are updated in chunks, whose masters are copied before: on a CPU they stay in the
// caches, so that only the pass over the gradients costs memory traffic.
#pragma once

#include <cstdint>
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

class LayerNorms {
 public:
  /// `plan` must outlive the object. Memory of the device: 1 MiB on a CPU, 16 MiB on a GPU.
  LayerNorms(const layout::Plan& plan, device::Device& device);

  /// Begins a step whose gradients count times `gradient_scale`.
  void begin(double gradient_scale, device::Stream& stream);
  /// A piece of a summed gradient, which no other rank adds.
  void add_gradient(ParameterIndex parameter, ConstView gradient, device::Stream& stream);
  /// Updates by `rule`, and adds what changed in `own`, the pieces that no other rank adds.
  void update(Rule& rule,
              const Update& update,
              std::span<const layout::Piece> own,
              const ops::GradientNorm& norm,
              device::Stream& stream);
  /// Sends what was added to the host.
  void fetch(device::Stream& stream);
  /// By layout::Parameter::group. Collective. Requires: the host has waited for fetch().
  std::vector<LayerNorm> norms(comm::World& world);

 private:
  struct Sums {
    explicit Sums(device::Device& device) : gradient(device), weight(device), update(device) {}
    ops::StreamSum gradient, weight, update;
  };
  Sums& sums_of(ParameterIndex parameter) {
    return *layers_[static_cast<std::size_t>(plan_.parameter(parameter).group)];
  }

  const layout::Plan& plan_;
  std::vector<std::unique_ptr<Sums>> layers_;
  device::Buffer before_;  // masters of a chunk
  double gradient_scale_ = 1;
};

}  // namespace trireme::optim
