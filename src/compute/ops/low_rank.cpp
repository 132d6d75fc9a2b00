// SPDX-License-Identifier: Apache-2.0
#include "ops/low_rank.hpp"

#include "ops/dispatch.hpp"

namespace trireme::ops {

void run(const Orthonormalize& call, device::Stream& stream) {
  TRIREME_EXPECT(call.count >= 1 && call.rows.elements % call.count == 0 &&
                     call.rows.elements / call.count > call.count,
                 "{} rows of {} elements in all", call.count, call.rows.elements);
  expect_operands(call.name, {{"rows", call.rows, call.rows.elements, DType::f32}});
  enqueue<float>(call, stream);
}

void run(const SubtractFinite& call, device::Stream& stream) {
  expect_operands(call.name, {{"rest", call.rest, call.rest.elements, DType::f32},
                              {"term", call.term, call.rest.elements, DType::f32}});
  enqueue<float>(call, stream);
}

}  // namespace trireme::ops
