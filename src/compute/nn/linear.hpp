// SPDX-License-Identifier: Apache-2.0
// A linear layer, y = x · Wᵀ + b: its parameters and its three products (linear_products.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nn/call.hpp"
#include "nn/kernels.hpp"
#include "nn/registry.hpp"

namespace trireme::nn {

class LayerNorm;

struct LinearConfig {
  std::string role;  ///< name in tables of products: "qkv"
  std::int64_t in = 0, out = 0;
  bool bias = true;
  double deviation = 0;      ///< of the weight's initial values
  bool gelu_before = false;  ///< backward_input() takes z
  /// Heights of the separate matrices in the weight (layout::Parameter); empty: one matrix.
  std::vector<std::int64_t> parts{};
};

class Linear {
 public:
  /// Registers NAME.weight and NAME.bias.
  Linear(Registry& registry, const std::string& name, LinearConfig config);

  /// Whether forward() computes a GELU. Call before prepare() and product().
  void set_gelu_after(bool gelu_after) { gelu_after_ = gelu_after; }
  void prepare(Kernels& kernels, const BatchSize& size);
  [[nodiscard]] ListedProduct product(const BatchSize& size) const {
    return {.layer = config_.role, .products = shape(size), .bias_is_fused = bias_is_fused_};
  }
  /// Requests the bias sums from the layer that reads the stream next (layer_norm.hpp).
  void request_bias_sums(LayerNorm& next);

  /// With a GELU after the layer, z = x · Wᵀ + b, y = gelu(z).
  void forward(const Call& call, View y, ConstView x, View z = {}) const;
  /// Computes and reports the gradients of the weight and, if not fused, of the bias.
  void backward_parameters(const Call& call, ConstView dy, ConstView x) const;
  /// dx = dy · W; with a GELU before the layer, x = gelu(z), dx becomes the gradient of z.
  void backward_input(const Call& call, View dx, ConstView dy, View z = {}) const;

 private:
  [[nodiscard]] LinearShape shape(const BatchSize& size) const;
  [[nodiscard]] const LinearProducts& products(const Call& call) const {
    return products_[call.size];
  }

  const LinearConfig config_;
  ParameterIndex weight_, bias_ = absent;
  bool bias_is_fused_ = false, gelu_after_ = false;
  std::vector<LinearProducts> products_;  // by batch size
};

}  // namespace trireme::nn
