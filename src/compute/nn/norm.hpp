// SPDX-License-Identifier: Apache-2.0
// A normalization of the residual stream, before each branch and before the head. A
// variant (LayerNorm) defines how it normalizes.
//
// It takes in the addition of the branch before it, so the stream is read and written once; and its
// gradient is added to that of the stream in the same pass.
#pragma once

#include <memory>
#include <string>

#include "base/view.hpp"

#include "nn/activations.hpp"
#include "nn/call.hpp"
#include "nn/neighbour.hpp"
#include "ops/dropout.hpp"

namespace trireme::nn {

class Norm : public Neighbour {
 public:
  virtual void plan(Planner& planner, Keep how) = 0;
  /// output = norm(x).
  virtual void forward(const Call& call, ConstView x) const = 0;
  /// sum = x + dropout(branch), output = norm(sum): to the bit what forward makes of the sum as it
  /// is stored. `sum` may be `x`.
  virtual void forward_sum(const Call& call,
                           View sum,
                           ConstView x,
                           ConstView branch,
                           const ops::Dropout& dropout) const = 0;
  /// dx += the gradient with respect to x when `accumulate`, = otherwise; dy is that of the output.
  /// Then the norm's own gradients are reported.
  virtual void backward(
      const Call& call, View dx, ConstView dy, ConstView x, bool accumulate) const = 0;
  [[nodiscard]] virtual View output(const Call& call) const = 0;
  /// FLOP per token of forward and backward: 6 per parameter (family formulas add them up).
  [[nodiscard]] virtual double flops_per_token() const = 0;
};

}  // namespace trireme::nn
