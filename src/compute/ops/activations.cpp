// SPDX-License-Identifier: Apache-2.0
#include "ops/activations.hpp"

#include "ops/calls/activations.hpp"
#include "ops/dispatch.hpp"

namespace trireme::ops {
namespace {

/// `x` has `times` as many elements as `y`, of the same dtype.
void expect_times(
    ConstView x, ConstView y, std::int64_t times, std::int64_t columns, const char* operation) {
  TRIREME_EXPECT(columns >= 1 && y.elements % columns == 0 && x.elements == times * y.elements &&
                     x.dtype == y.dtype,
                 "{} of {} {} and {} {}, rows of {}", operation, x.elements, name(x.dtype),
                 y.elements, name(y.dtype), columns);
}

}  // namespace

void squared_relu_forward(View y, ConstView x, device::Stream& stream) {
  expect_times(x, y, 1, 1, "squared_relu_forward");
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(SquaredReluForward<T>{y.as<T>(), x.as<T>(), x.elements}, stream);
  });
}

void squared_relu_backward(View dx, ConstView dy, ConstView x, device::Stream& stream) {
  expect_times(x, dx, 1, 1, "squared_relu_backward");
  expect_times(x, dy, 1, 1, "squared_relu_backward");
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(SquaredReluBackward<T>{dx.as<T>(), dy.as<T>(), x.as<T>(), x.elements}, stream);
  });
}

void swiglu_forward(View y, ConstView x, std::int64_t columns, device::Stream& stream) {
  expect_times(x, y, 2, columns, "swiglu_forward");
  const std::int64_t rows = y.elements / columns;
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(SwigluForward<T>{y.as<T>(), x.as<T>(), rows, columns}, stream);
  });
}

void swiglu_backward(
    View dx, ConstView dy, ConstView x, std::int64_t columns, device::Stream& stream) {
  expect_times(x, dy, 2, columns, "swiglu_backward");
  expect_times(dx, dy, 2, columns, "swiglu_backward");
  const std::int64_t rows = dy.elements / columns;
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(SwigluBackward<T>{dx.as<T>(), dy.as<T>(), x.as<T>(), rows, columns}, stream);
  });
}

}  // namespace trireme::ops
