// SPDX-License-Identifier: Apache-2.0
#include "ops/block_codes.hpp"

#include "ops/dispatch.hpp"

namespace trireme::ops {

void run(const EncodeBlocks& call, device::Stream& stream) {
  const std::int64_t elements = call.values.elements;
  TRIREME_EXPECT(elements % block_elements == 0, "{} elements in blocks of {}", elements,
                 block_elements);
  expect_operands(call.name, {{"codes", call.codes, coded_bytes(call.code, elements), DType::u8},
                              {"values", call.values, elements, DType::f32},
                              optional({"error", call.error, elements, DType::f32})});
  enqueue<float>(call, stream);
}

void run(const DecodeBlocks& call, device::Stream& stream) {
  const std::int64_t elements = call.sum.elements;
  TRIREME_EXPECT(elements % block_elements == 0, "{} elements in blocks of {}", elements,
                 block_elements);
  expect_operands(call.name, {{"sum", call.sum, elements, DType::f32},
                              {"codes", call.codes, coded_bytes(call.code, elements), DType::u8}});
  enqueue<float>(call, stream);
}

}  // namespace trireme::ops
