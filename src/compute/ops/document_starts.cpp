// SPDX-License-Identifier: Apache-2.0
#include "ops/document_starts.hpp"

#include "ops/dispatch.hpp"

namespace trireme::ops {

void run(const DocumentStarts& call, device::Stream& stream) {
  expect_rows(call.tokens, call.time);
  expect_operands(call.name, {{"tokens", call.tokens, call.tokens.elements, DType::i32},
                              {"starts", call.starts, call.tokens.elements, DType::i32}});
  enqueue<std::int32_t>(call, stream);
}

}  // namespace trireme::ops
