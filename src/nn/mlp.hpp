// SPDX-License-Identifier: Apache-2.0
// Two linear layers with a GELU between them. The GELU is part of the products where the device can
// (ops::Epilogue), but for one that backward computes again: that must be the one of forward to the
// bit, so it stands by itself.
#pragma once

#include <cstdint>
#include <string>

#include "nn/branch.hpp"

namespace trireme::nn {

struct MlpConfig {
  std::int64_t channels = 0;  ///< of the residual stream
  std::int64_t hidden = 0;
  bool bias = true;
  bool recomputes = false;      ///< the GELU's output is dropped: Recompute::gelu
  double deviation = 0;         ///< of initial values
  double output_deviation = 0;  ///< of those of the output layer
};

class Mlp final : public Branch {
 public:
  Mlp(Registry& registry, const std::string& scope, const MlpConfig& config);

  void plan(Planner& planner) override;
  void prepare(Kernels& kernels, const BatchSize& size) override;
  void list(ProductList& list) const override;
  [[nodiscard]] double flops_per_token(std::int64_t context) const override;
  [[nodiscard]] Linear& output_layer() override { return output_; }

  void forward_inside(const Call& call, ConstView x) const override;
  void forward_output(const Call& call) const override;
  void backward(const Call& call, ConstView dy, ConstView x) const override;

 private:
  /// Where the GELU's output goes and, once there, comes from.
  [[nodiscard]] View activated(const Call& call) const {
    return activated_.elements == 0 ? hidden_of(call) : call.view(activated_);
  }
  [[nodiscard]] View hidden_of(const Call& call) const { return call.wide_of(config_.hidden); }

  const MlpConfig config_;
  Linear input_, output_;
  Slot before_, activated_;
};

}  // namespace trireme::nn
