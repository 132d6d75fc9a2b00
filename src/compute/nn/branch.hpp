// SPDX-License-Identifier: Apache-2.0
// A branch of the residual stream: x + branch(norm(x)). A variant (Attention, Mlp) defines what it
// computes; a family is a sequence of norms and branches.
//
// 1. The branch's input is its norm's output, and its output goes into call.narrow, from where the
//    next norm adds it to the stream.
// 2. Forward has two parts, because a block that backward computes again needs only the first.
// 3. Scratch: forward may use `wide`, from the first part to the second; backward may use both.
#pragma once

#include "base/view.hpp"

#include "nn/activations.hpp"
#include "nn/call.hpp"
#include "nn/kernels.hpp"
#include "nn/linear.hpp"
#include "nn/product_list.hpp"

namespace trireme::nn {

class Branch {
 public:
  virtual ~Branch() = default;

  virtual void plan(Planner& planner) = 0;
  virtual void prepare(Kernels& kernels, const BatchSize& size) = 0;
  virtual void list(ProductList& list) const = 0;
  /// FLOP per token of forward and backward, in a sequence of `context` tokens.
  [[nodiscard]] virtual double flops_per_token(std::int64_t context) const = 0;
  /// The layer whose output the branch adds to the stream.
  [[nodiscard]] virtual Linear& output_layer() = 0;

  /// Everything that backward reads.
  virtual void forward_inside(const Call& call, ConstView x) const = 0;
  /// The rest, into call.narrow.
  virtual void forward_output(const Call& call) const = 0;
  /// From the gradient of the output, which may not lie in call.narrow, to that of the input, into
  /// call.narrow; reports the branch's parameters.
  virtual void backward(const Call& call, ConstView dy, ConstView x) const = 0;
};

}  // namespace trireme::nn
