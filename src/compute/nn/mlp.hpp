// SPDX-License-Identifier: Apache-2.0
// Two linear layers with an activation between them. A GELU is fused with the products if the
// device can (ops::Epilogue), except if backward recomputes it: then it is a separate pass, which
// gives the same bits as in forward. Other activations are always separate passes. With SwiGLU the
// first layer has twice the width: the gates, then the gated channels.
#pragma once

#include <cstdint>
#include <string>

#include "nn/branch.hpp"
#include "nn/config.hpp"

namespace trireme::nn {

struct MlpConfig {
  std::int64_t channels = 0;  ///< of the residual stream
  std::int64_t hidden = 0;
  bool bias = true;
  double deviation = 0;         ///< of the first layer's initial values
  double output_deviation = 0;  ///< of the output layer's initial values
  Activation activation = Activation::gelu;

  /// Width of the first layer's output.
  [[nodiscard]] std::int64_t before_width() const {
    return activation == Activation::swiglu ? 2 * hidden : hidden;
  }
};

class Mlp final : public Branch {
 public:
  Mlp(Registry& registry, const std::string& scope, const MlpConfig& config);

  void plan(Planner& planner) override;
  void prepare(Kernels& kernels, const BatchSize& size) override;
  [[nodiscard]] std::vector<ListedProduct> products(const BatchSize& size) const override {
    return {input_.product(size), output_.product(size)};
  }
  [[nodiscard]] Linear& output_layer() override { return output_; }

  void forward_inside(const Call& call, ConstView x) const override;
  void forward_output(const Call& call) const override;
  void backward(const Call& call, ConstView dy, ConstView x) const override;

 private:
  /// Whether the activation's output is dropped: Recompute::gelu.
  [[nodiscard]] bool recomputes() const { return activated_.elements == 0; }
  /// Whether the GELU is fused with the products.
  [[nodiscard]] bool fuses() const {
    return config_.activation == Activation::gelu && !recomputes();
  }
  [[nodiscard]] View activated(const Call& call) const {
    return recomputes() ? hidden_of(call) : call.view(activated_);
  }
  /// The part of `wide` for the activation's output or its gradient. The gradient of its input
  /// follows if it has another width, else it replaces that gradient.
  [[nodiscard]] View hidden_of(const Call& call) const;
  [[nodiscard]] std::int64_t wide_width() const;
  void activate(const Call& call, ConstView before) const;

  const MlpConfig config_;
  Linear input_, output_;
  Slot before_, activated_;
};

}  // namespace trireme::nn
