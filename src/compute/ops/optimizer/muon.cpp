// SPDX-License-Identifier: Apache-2.0
#include "ops/optimizer/muon.hpp"

#include "ops/dispatch.hpp"

namespace trireme::ops {

void run(const MuonDirection& call, device::Stream& stream) {
  expect_operands(call.name, {{"gradient", call.gradient, call.m.elements, DType::f32}});
  enqueue(call, call.m.dtype, stream);
}

void run(const MuonUpdate& call, device::Stream& stream) {
  expect_operands(call.name, {{"master", call.master, call.parameter.elements, DType::f32},
                              {"direction", call.direction, call.parameter.elements, DType::f32}});
  enqueue(call, call.parameter.dtype, stream);
}

}  // namespace trireme::ops
