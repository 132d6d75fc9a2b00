// SPDX-License-Identifier: Apache-2.0
// The three matrix products of a linear layer, y = x · Wᵀ + b, shared by all layers of the same
// shape.
//
// Shapes: x, dx = [rows, in], y, dy = [rows, out], weight = [out, in], bias = [out]; weight
// gradients are fp32 and added to. All other dtypes are `dtype`, except y, which may be fp32
// (logits).
//
// On a CPU a row of y does not depend on the other rows (ops/matmul.hpp); on a GPU this
// holds up to the rounding of sums.
//
// For a GELU after or before the layer, forward_gelu() and backward_input_gelu() compute it within
// the product if the device can (ops::Epilogue; see fuses_gelu_after() and fuses_gelu_before()),
// else in a separate pass. `z` = [rows, out] or [rows, in] is the input of the GELU, which backward
// needs.
#pragma once

#include <compare>
#include <optional>

#include "ops/matmul.hpp"

namespace trireme::nn {

struct LinearShape {
  std::int64_t rows = 0, in = 0, out = 0;
  bool bias = false;
  DType dtype = DType::f32;
  DType y = DType::f32;
  bool gelu_after = false;  ///< y = gelu(z), z = x · Wᵀ + b: forward_gelu() instead of forward()
  bool gelu_before = false;  ///< x = gelu(z): backward_input_gelu() instead of backward_input()

  auto operator<=>(const LinearShape&) const = default;
};

class LinearProducts {
 public:
  LinearProducts(device::Device& device,
                 const LinearShape& shape,
                 const ops::ProductOptions& options);
  /// Creates the products of backward. Call once, before the first of them.
  void prepare_backward(device::Device& device);

  /// `bias` is empty if and only if the shape has none.
  void forward(View y, ConstView x, ConstView weight, ConstView bias, device::Stream& s) const;
  /// z = x · Wᵀ + b, y = gelu(z).
  void forward_gelu(
      View y, View z, ConstView x, ConstView weight, ConstView bias, device::Stream& s) const;
  [[nodiscard]] bool fuses_gelu_after() const { return forward_.fuses_epilogue(); }
  /// dx = dy · W.
  void backward_input(View dx, ConstView dy, ConstView weight, device::Stream& s) const;
  /// dz = (dy · W) · gelu'(z).
  void backward_input_gelu(
      View dz, View z, ConstView dy, ConstView weight, device::Stream& s) const;
  /// Requires: prepare_backward().
  [[nodiscard]] bool fuses_gelu_before() const { return input_->fuses_epilogue(); }
  /// dW += dyᵀ · x.
  void backward_weight(View dweight, ConstView dy, ConstView x, device::Stream& s) const;
  /// Whether the next does more than backward_weight() and BiasBackward: dy is read once.
  [[nodiscard]] bool sums_bias() const;
  /// dW += dyᵀ · x, db += the sum of the rows of dy.
  void backward_weight_and_bias(
      View dweight, View dbias, ConstView dy, ConstView x, device::Stream& s) const;

  [[nodiscard]] const LinearShape& shape() const { return shape_; }

 private:
  LinearShape shape_;
  ops::ProductOptions options_;
  ops::Matmul forward_;
  std::optional<ops::Matmul> input_;
  std::optional<ops::Matmul> weight_;
};

}  // namespace trireme::nn
