// SPDX-License-Identifier: Apache-2.0
#include "ops/activations.hpp"

#include "ops/dispatch.hpp"

namespace trireme::ops {
namespace {

/// y = f(x).
void run_map(const auto& call, device::Stream& stream) {
  expect_operands(call.name, {{"y", call.y, call.x.elements, call.x.dtype}});
  enqueue(call, call.x.dtype, stream);
}

/// dx = dy f'(x).
void run_gradient(const auto& call, device::Stream& stream) {
  expect_operands(call.name, {{"dx", call.dx, call.x.elements, call.x.dtype},
                              {"dy", call.dy, call.x.elements, call.x.dtype}});
  enqueue(call, call.x.dtype, stream);
}

}  // namespace

void run(const GeluForward& call, device::Stream& stream) {
  run_map(call, stream);
}

void run(const GeluBackward& call, device::Stream& stream) {
  run_gradient(call, stream);
}

void run(const SquaredReluForward& call, device::Stream& stream) {
  run_map(call, stream);
}

void run(const SquaredReluBackward& call, device::Stream& stream) {
  run_gradient(call, stream);
}

void run(const SwigluForward& call, device::Stream& stream) {
  expect_rows(call.y, call.columns);
  expect_operands(call.name, {{"x", call.x, 2 * call.y.elements, call.y.dtype}});
  enqueue(call, call.x.dtype, stream);
}

void run(const SwigluBackward& call, device::Stream& stream) {
  expect_rows(call.dy, call.columns);
  expect_operands(call.name, {{"x", call.x, 2 * call.dy.elements, call.dy.dtype},
                              {"dx", call.dx, 2 * call.dy.elements, call.dy.dtype}});
  enqueue(call, call.x.dtype, stream);
}

}  // namespace trireme::ops
