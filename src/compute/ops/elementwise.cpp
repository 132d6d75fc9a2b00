// SPDX-License-Identifier: Apache-2.0
#include "ops/elementwise.hpp"

#include "ops/dispatch.hpp"

namespace trireme::ops {

void run(const DropoutBackward& call, device::Stream& stream) {
  expect_operands(call.name, {{"dbranch", call.dbranch, call.dy.elements, call.dy.dtype}});
  TRIREME_EXPECT(call.elements_per_sample >= 1 && call.dy.elements % call.elements_per_sample == 0,
                 "{} elements are not samples of {}", call.dy.elements, call.elements_per_sample);
  expect_valid(call.dropout);
  enqueue(call, call.dy.dtype, stream);
}

void run(const BiasBackward& call, device::Stream& stream) {
  expect_operands(call.name, {{"db", call.db, call.db.elements, DType::f32}});
  TRIREME_EXPECT(call.db.elements >= 1 && call.dy.elements % call.db.elements == 0,
                 "{} gradients are not rows of {}", call.dy.elements, call.db.elements);
  enqueue(call, call.dy.dtype, stream);
}

void run(const Add& call, device::Stream& stream) {
  expect_operands(call.name, {{"sum", call.sum, call.sum.elements, DType::f32},
                              {"term", call.term, call.sum.elements, DType::f32}});
  enqueue<float>(call, stream);
}

void run(const Cast& call, device::Stream& stream) {
  expect_operands(call.name, {{"to", call.to, call.from.elements, call.to.dtype}});
  TRIREME_EXPECT(call.from.dtype == DType::f32 || call.from.dtype == DType::bf16, "a cast from {}",
                 name(call.from.dtype));
  enqueue(call, call.to.dtype, stream);
}

void run(const DocumentStarts& call, device::Stream& stream) {
  expect_rows(call.tokens, call.time);
  expect_operands(call.name, {{"tokens", call.tokens, call.tokens.elements, DType::i32},
                              {"starts", call.starts, call.tokens.elements, DType::i32}});
  enqueue<std::int32_t>(call, stream);
}

}  // namespace trireme::ops
