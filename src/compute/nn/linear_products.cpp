// SPDX-License-Identifier: Apache-2.0
#include "nn/linear_products.hpp"

#include "base/error.hpp"

namespace trireme::nn {
namespace {

ops::MatmulShape forward_shape(const LinearShape& shape) {
  return {.m = shape.rows,
          .n = shape.out,
          .k = shape.in,
          .b_transposed = true,
          .a = shape.dtype,
          .b = shape.dtype,
          .c = shape.y,
          .bias = shape.bias,
          .epilogue = shape.gelu_after ? ops::Epilogue::gelu : ops::Epilogue::none};
}

}  // namespace

LinearProducts::LinearProducts(device::Device& device,
                               const LinearShape& shape,
                               const ops::ProductOptions& options)
    : shape_(shape), options_(options), forward_(device, forward_shape(shape), options) {}

void LinearProducts::prepare_backward(device::Device& device) {
  if (input_)
    return;
  const DType dtype = shape_.dtype;
  input_.emplace(device,
                 ops::MatmulShape{.m = shape_.rows,
                                  .n = shape_.in,
                                  .k = shape_.out,
                                  .a = dtype,
                                  .b = dtype,
                                  .c = dtype,
                                  .epilogue = shape_.gelu_before ? ops::Epilogue::gelu_backward
                                                                 : ops::Epilogue::none},
                 options_);
  weight_.emplace(device,
                  ops::MatmulShape{.m = shape_.out,
                                   .n = shape_.in,
                                   .k = shape_.rows,
                                   .a_transposed = true,
                                   .a = dtype,
                                   .b = dtype,
                                   .c = DType::f32,
                                   .accumulate = true,
                                   .row_sums = shape_.bias},
                  options_);
}

void LinearProducts::forward(
    View y, ConstView x, ConstView weight, ConstView bias, device::Stream& s) const {
  forward_({.a = x, .b = weight, .bias = bias, .c = y}, s);
}

void LinearProducts::forward_gelu(
    View y, View z, ConstView x, ConstView weight, ConstView bias, device::Stream& s) const {
  forward_({.a = x, .b = weight, .bias = bias, .z = z, .c = y}, s);
}

void LinearProducts::backward_input_gelu(
    View dz, View z, ConstView dy, ConstView weight, device::Stream& s) const {
  TRIREME_ASSERT(input_.has_value(), "backward of a linear layer that was prepared for forward");
  (*input_)({.a = dy, .b = weight, .z = z, .c = dz}, s);
}

void LinearProducts::backward_input(View dx,
                                    ConstView dy,
                                    ConstView weight,
                                    device::Stream& s) const {
  TRIREME_ASSERT(input_.has_value(), "backward of a linear layer that was prepared for forward");
  (*input_)({.a = dy, .b = weight, .c = dx}, s);
}

void LinearProducts::backward_weight(View dweight,
                                     ConstView dy,
                                     ConstView x,
                                     device::Stream& s) const {
  TRIREME_ASSERT(weight_.has_value(), "backward of a linear layer that was prepared for forward");
  (*weight_)({.a = dy, .b = x, .c = dweight}, s);
}

bool LinearProducts::sums_bias() const {
  return weight_.has_value() && weight_->sums_rows();
}

void LinearProducts::backward_weight_and_bias(
    View dweight, View dbias, ConstView dy, ConstView x, device::Stream& s) const {
  TRIREME_ASSERT(weight_.has_value(), "backward of a linear layer that was prepared for forward");
  (*weight_)({.a = dy, .b = x, .c = dweight, .row_sums = dbias}, s);
}

}  // namespace trireme::nn
