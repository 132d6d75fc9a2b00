// SPDX-License-Identifier: Apache-2.0
// A linear layer, y = x · Wᵀ + b: its parameters, and the three products of its shape
// (linear_products.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nn/call.hpp"
#include "nn/kernels.hpp"
#include "nn/neighbour.hpp"
#include "nn/product_list.hpp"
#include "nn/registry.hpp"

namespace trireme::nn {

struct LinearConfig {
  std::string role;  ///< in tables of products: "qkv"
  std::int64_t in = 0, out = 0;
  bool bias = true;
  double deviation = 0;      ///< of the weight's initial values
  bool gelu_before = false;  ///< backward_input_gelu() instead of backward_input()
  /// Widths of the outputs that are matrices of their own (layout::Parameter); empty: one.
  std::vector<std::int64_t> parts{};
};

class Linear {
 public:
  /// Registers NAME.weight and NAME.bias.
  Linear(Registry& registry, const std::string& name, LinearConfig config);

  /// Before prepare() and list(): forward_gelu() instead of forward().
  void set_gelu_after(bool gelu_after) { gelu_after_ = gelu_after; }
  void prepare(Kernels& kernels, const BatchSize& size);
  void list(ProductList& list) const;
  [[nodiscard]] double flops_per_token() const;
  /// Asks the layer that reads this output's sum (neighbour.hpp).
  void ask_for_bias_sums(Neighbour& next);

  void forward(const Call& call, View y, ConstView x) const;
  /// z = x · Wᵀ + b, y = gelu(z).
  void forward_gelu(const Call& call, View y, View z, ConstView x) const;
  /// The gradients of the bias, where no neighbour makes it, and of the weight, both reported.
  void backward_parameters(const Call& call, ConstView dy, ConstView x) const;
  /// dx = dy · W.
  void backward_input(const Call& call, View dx, ConstView dy) const;
  /// dz = (dy · W) · gelu'(z), where x = gelu(z).
  void backward_input_gelu(const Call& call, View dz, View z, ConstView dy) const;

  [[nodiscard]] const LinearConfig& config() const { return config_; }

 private:
  [[nodiscard]] LinearShape shape(const BatchSize& size) const;
  [[nodiscard]] const LinearProducts& products(const Call& call) const {
    return *products_[call.size];
  }

  const LinearConfig config_;
  ParameterIndex weight_, bias_ = absent;
  bool bias_by_neighbour_ = false, gelu_after_ = false;
  std::vector<const LinearProducts*> products_;  // by batch size
};

}  // namespace trireme::nn
