// SPDX-License-Identifier: Apache-2.0
// Interface of a branch of the residual stream, x + branch(norm(x)): Attention or Mlp.
//
// 1. The input is the norm's output. The output is call.narrow, which the next norm adds to x.
// 2. Forward has two parts, because recomputing a block needs only the first.
// 3. Scratch: forward may use `wide`, from the first part to the second; backward may use both.
#pragma once

#include <vector>

#include "base/view.hpp"

#include "nn/activations.hpp"
#include "nn/call.hpp"
#include "nn/kernels.hpp"
#include "nn/linear.hpp"

namespace trireme::nn {

class Branch {
 public:
  virtual ~Branch() = default;

  virtual void plan(Planner& planner) = 0;
  virtual void prepare(Kernels& kernels, const BatchSize& size) = 0;
  [[nodiscard]] virtual std::vector<ListedProduct> products(const BatchSize& size) const = 0;
  /// The layer whose output the branch adds to the stream.
  [[nodiscard]] virtual Linear& output_layer() = 0;

  /// Computes everything that backward reads.
  virtual void forward_inside(const Call& call, ConstView x) const = 0;
  virtual void forward_output(const Call& call) const = 0;
  /// Computes the gradient of the input into call.narrow from that of the output, `dy`, which must
  /// not be in call.narrow. Reports the branch's parameters.
  virtual void backward(const Call& call, ConstView dy, ConstView x) const = 0;
};

}  // namespace trireme::nn
