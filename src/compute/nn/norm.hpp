// SPDX-License-Identifier: Apache-2.0
// Interface of a normalization of the residual stream, before each branch and before the head.
//
// It includes the addition of the preceding branch, so the stream is read and written once.
// Backward adds its gradient to that of the stream in the same pass.
#pragma once

#include <memory>
#include <string>

#include "base/view.hpp"

#include "nn/activations.hpp"
#include "nn/call.hpp"
#include "nn/fusion.hpp"
#include "ops/dropout.hpp"

namespace trireme::nn {

class Norm : public FusionTarget {
 public:
  virtual void plan(Planner& planner, Retention how) = 0;
  /// output = norm(x).
  virtual void forward(const Call& call, ConstView x) const = 0;
  /// sum = x + dropout(branch), output = norm(sum), with the same bits as forward(sum). `sum` may
  /// be `x`.
  virtual void forward_sum(const Call& call,
                           View sum,
                           ConstView x,
                           ConstView branch,
                           const ops::Dropout& dropout) const = 0;
  /// dx += the gradient with respect to x when `accumulate`, = otherwise; dy is that of the output.
  /// Reports the norm's own gradients.
  virtual void backward(
      const Call& call, View dx, ConstView dy, ConstView x, bool accumulate) const = 0;
  [[nodiscard]] virtual View output(const Call& call) const = 0;
  /// FLOP per token of forward and backward: 6 per parameter.
  [[nodiscard]] virtual double flops_per_token() const = 0;
};

}  // namespace trireme::nn
