// SPDX-License-Identifier: Apache-2.0
// Layer normalization with optional gain and bias, or RMS normalization with optional gain
// (ops/layer_norm.hpp), of the residual stream: before each branch and before the head.
//
// It includes the addition of the preceding branch, so the stream is read and written once.
// Backward adds its gradient to that of the stream in the same pass. It can also add the sums over
// the rows of that gradient to the gradient of the preceding branch's bias (accept_bias_sums), which
// are the same, unless dropout is between the two.
#pragma once

#include <cstdint>
#include <string>

#include "base/view.hpp"

#include "nn/activations.hpp"
#include "nn/call.hpp"
#include "nn/registry.hpp"
#include "ops/dropout.hpp"
#include "ops/layer_norm.hpp"

namespace trireme::nn {

struct LayerNormConfig {
  std::int64_t channels = 0;
  bool gain = true;
  bool bias = true;
  ops::NormKind kind = ops::NormKind::layer;  ///< RMS normalization has no bias
  double epsilon = 0;
};

class LayerNorm {
 public:
  /// `scope` is that of the block, "h.3.", or empty.
  LayerNorm(Registry& registry,
            const std::string& scope,
            std::string name,
            const LayerNormConfig& config);

  void plan(Planner& planner, Retention how);
  /// output = norm(x).
  void forward(const Call& call, ConstView x) const;
  /// sum = x + dropout(branch), output = norm(sum), same bits as forward(sum). `sum` may be `x`.
  void forward_sum(
      const Call& call, View sum, ConstView x, ConstView branch, const ops::Dropout& dropout) const;
  /// dx += the gradient with respect to x when `accumulate`, = otherwise; dy is that of the output.
  /// Reports the norm's own gradients.
  void backward(const Call& call, View dx, ConstView dy, ConstView x, bool accumulate) const;
  [[nodiscard]] View output(const Call& call) const { return call.view(output_); }
  /// Requests that backward adds its row sums to the gradient of `bias`. Returns whether the layer
  /// accepts; it accepts at most one parameter.
  bool accept_bias_sums(ParameterIndex bias);

 private:
  const std::string name_;
  const LayerNormConfig config_;
  [[nodiscard]] ops::LayerNormForward forward_of(const Call& call, ConstView x) const;

  ParameterIndex weight_ = absent, bias_ = absent;
  ParameterIndex fused_bias_ = absent;  // of the layer whose output was added to the stream last
  Slot mean_, rstd_, output_;
};

}  // namespace trireme::nn
