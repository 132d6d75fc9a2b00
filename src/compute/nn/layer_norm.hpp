// SPDX-License-Identifier: Apache-2.0
// Layer normalization with optional gain and bias, or RMS normalization with optional gain
// (ops/layer_norm.hpp).
#pragma once

#include <cstdint>
#include <string>

#include "nn/norm.hpp"
#include "nn/registry.hpp"
#include "ops/layer_norm.hpp"

namespace trireme::nn {

struct LayerNormConfig {
  std::int64_t channels = 0;
  bool gain = true;
  bool bias = true;
  ops::NormKind kind = ops::NormKind::layer;  ///< RMS normalization has no bias
  double epsilon = 0;
};

class LayerNorm final : public Norm {
 public:
  /// `scope` is that of the block, "h.3.", or empty.
  LayerNorm(Registry& registry,
            const std::string& scope,
            std::string name,
            const LayerNormConfig& config);

  void plan(Planner& planner, Retention how) override;
  void forward(const Call& call, ConstView x) const override;
  void forward_sum(const Call& call,
                   View sum,
                   ConstView x,
                   ConstView branch,
                   const ops::Dropout& dropout) const override;
  void backward(
      const Call& call, View dx, ConstView dy, ConstView x, bool accumulate) const override;
  [[nodiscard]] View output(const Call& call) const override { return call.view(output_); }
  [[nodiscard]] double flops_per_token() const override;
  bool accept_bias_sums(ParameterIndex bias) override;

 private:
  const std::string name_;
  const LayerNormConfig config_;
  [[nodiscard]] ops::LayerNormForward forward_of(const Call& call, ConstView x) const;

  ParameterIndex weight_ = absent, bias_ = absent;
  ParameterIndex fused_bias_ = absent;  // of the layer whose output was added to the stream last
  Slot mean_, rstd_, output_;
};

}  // namespace trireme::nn
