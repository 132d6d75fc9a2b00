// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding.hpp"

#include "ops/calls/embedding.hpp"
#include "ops/dispatch.hpp"

namespace trireme::ops {
namespace {

void expect_sizes(ConstView out,
                  ConstView tokens,
                  ConstView wte,
                  ConstView wpe,
                  const EmbeddingShape& s,
                  const Dropout& dropout) {
  TRIREME_EXPECT(s.batch >= 1 && s.time >= 1 && s.channels >= 1 && s.vocabulary >= 1,
                 "an embedding of {} x {} x {}, vocabulary {}", s.batch, s.time, s.channels,
                 s.vocabulary);
  TRIREME_EXPECT(tokens.elements == s.batch * s.time, "{} tokens for {} x {}", tokens.elements,
                 s.batch, s.time);
  TRIREME_EXPECT(out.elements == s.batch * s.time * s.channels, "{} elements for {} x {} x {}",
                 out.elements, s.batch, s.time, s.channels);
  TRIREME_EXPECT(wte.elements == s.vocabulary * s.channels, "{} token weights for {} x {}",
                 wte.elements, s.vocabulary, s.channels);
  TRIREME_EXPECT(
      wpe.empty() || (wpe.elements >= s.time * s.channels && wpe.elements % s.channels == 0),
      "{} position weights for {} x {}", wpe.elements, s.time, s.channels);
  expect_valid(dropout);
}

}  // namespace

void embedding_forward(View out,
                       ConstView tokens,
                       ConstView wte,
                       ConstView wpe,
                       const EmbeddingShape& shape,
                       const Dropout& dropout,
                       device::Stream& stream) {
  expect_sizes(out, tokens, wte, wpe, shape, dropout);
  with_float_type(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(EmbeddingForward<T>{out.as<T>(), tokens.as<std::int32_t>(), wte.as<T>(),
                                pointer_or_null<T>(wpe), shape, dropout},
            stream);
  });
}

void embedding_of_positions(View out,
                            ConstView tokens,
                            ConstView positions,
                            ConstView wte,
                            ConstView wpe,
                            std::int64_t vocabulary,
                            device::Stream& stream) {
  TRIREME_EXPECT(vocabulary >= 1 && tokens.elements >= 1 && positions.elements == tokens.elements,
                 "{} tokens of a vocabulary of {} at {} positions", tokens.elements, vocabulary,
                 positions.elements);
  const EmbeddingShape shape{tokens.elements, 1, wte.elements / vocabulary, vocabulary};
  expect_sizes(out, tokens, wte, wpe, shape, {});
  with_float_type(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue_on_cpu(EmbeddingOfPositions<T>{out.as<T>(), tokens.as<std::int32_t>(),
                                           positions.as<std::int32_t>(), wte.as<T>(),
                                           pointer_or_null<T>(wpe), shape},
                   stream);
  });
}

void embedding_backward(View dwte,
                        View dwpe,
                        ConstView dout,
                        ConstView tokens,
                        const EmbeddingShape& shape,
                        const Dropout& dropout,
                        device::Stream& stream) {
  expect_sizes(dout, tokens, dwte, dwpe, shape, dropout);
  on_cuda(stream, [&](auto) {
    TRIREME_EXPECT(cuda::embedding_backward_bytes(tokens.elements, shape.channels) <=
                       device::cuda::workspace_bytes,
                   "{} tokens in a micro-batch are too many to sort", tokens.elements);
  });
  with_float_type(dout.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(EmbeddingBackward<T>{dwte.as<float>(), pointer_or_null<float>(dwpe), dout.as<T>(),
                                 tokens.as<std::int32_t>(), shape, dropout},
            stream);
  });
}

}  // namespace trireme::ops
