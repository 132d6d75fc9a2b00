// SPDX-License-Identifier: Apache-2.0
#include "ops/activations.hpp"

#include "ops/dispatch.hpp"

namespace trireme::ops {
namespace {

/// Number of elements of x per element of y.
std::int64_t inputs_of(const auto& call, ConstView y) {
  if (call.function != Activation::swiglu)
    return 1;
  expect_rows(y, call.columns);
  return 2;
}

}  // namespace

void run(const ActivationForward& call, device::Stream& stream) {
  const std::int64_t inputs = inputs_of(call, call.y);
  expect_operands(call.name, {{"x", call.x, inputs * call.y.elements, call.y.dtype}});
  enqueue(call, call.x.dtype, stream);
}

void run(const ActivationBackward& call, device::Stream& stream) {
  const std::int64_t elements = inputs_of(call, call.dy) * call.dy.elements;
  expect_operands(call.name, {{"x", call.x, elements, call.dy.dtype},
                              {"dx", call.dx, elements, call.dy.dtype}});
  enqueue(call, call.x.dtype, stream);
}

}  // namespace trireme::ops
