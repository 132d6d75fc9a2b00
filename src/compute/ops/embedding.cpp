// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding.hpp"

#include "ops/dispatch.hpp"

namespace trireme::ops {
namespace {

void expect_sizes(const char* operation,
                  const EmbeddingShape& s,
                  ConstView out,
                  ConstView tokens,
                  ConstView wte,
                  ConstView wpe,
                  DType weights) {
  const std::int64_t rows = s.batch * s.time, C = s.channels;
  TRIREME_EXPECT(s.batch >= 1 && s.time >= 1 && C >= 1 && s.vocabulary >= 1,
                 "an embedding of {} x {} x {}, vocabulary {}", s.batch, s.time, C, s.vocabulary);
  expect_operands(operation, {{"out", out, rows * C, out.dtype},
                              {"tokens", tokens, rows, DType::i32},
                              {"wte", wte, s.vocabulary * C, weights},
                              {"wpe", wpe, wpe.elements, weights}});
  TRIREME_EXPECT(wpe.empty() || (wpe.elements >= s.time * C && wpe.elements % C == 0),
                 "{} position weights for {} x {}", wpe.elements, s.time, C);
}

}  // namespace

void run(const EmbeddingForward& call, device::Stream& stream) {
  expect_sizes(call.name, call.shape, call.out, call.tokens, call.wte, call.wpe, call.out.dtype);
  expect_operands(call.name,
                  {optional({"positions", call.positions, call.tokens.elements, DType::i32})});
  expect_valid(call.dropout);
  enqueue(call, call.out.dtype, stream);
}

void run(const EmbeddingBackward& call, device::Stream& stream) {
  expect_sizes(call.name, call.shape, call.dout, call.tokens, call.dwte, call.dwpe, DType::f32);
  expect_valid(call.dropout);
  on_cuda(stream, [&](auto) {
    TRIREME_EXPECT(cuda::embedding_backward_bytes(call.tokens.elements, call.shape.channels) <=
                       device::cuda::workspace_bytes,
                   "{} tokens in a micro-batch are too many to sort", call.tokens.elements);
  });
  enqueue(call, call.dout.dtype, stream);
}

}  // namespace trireme::ops
