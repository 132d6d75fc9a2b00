// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding.hpp"

#include "ops/cpu/embedding.hpp"
#include "ops/cuda/embedding.hpp"
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

template <class T>
const T* or_null(ConstView view) {
  return view.empty() ? nullptr : view.as<T>();
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
    if (on_cuda(stream, [&](auto raw) {
          cuda::embedding_forward(
              out.as<T>(), tokens.as<std::int32_t>(), wte.as<T>(), or_null<T>(wpe),
              {shape.batch, shape.time, shape.channels, shape.vocabulary}, dropout, raw);
        }))
      return;
    on_cpu(stream, "embedding_forward")
        .run([to = out.as<T>(), ids = tokens.as<std::int32_t>(), token = wte.as<T>(),
              position = or_null<T>(wpe), shape,
              dropout] { cpu::embedding_forward(to, ids, token, position, shape, dropout); });
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
    on_cpu(stream, "embedding_of_positions")
        .run([to = out.as<T>(), ids = tokens.as<std::int32_t>(),
              places = positions.as<std::int32_t>(), token = wte.as<T>(),
              position = or_null<T>(wpe),
              shape] { cpu::embedding_of_positions(to, ids, places, token, position, shape); });
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
  auto* places = dwpe.empty() ? nullptr : dwpe.as<float>();
  with_float_type(dout.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (on_cuda(stream, [&](auto raw) {
          TRIREME_EXPECT(cuda::embedding_backward_bytes(tokens.elements, shape.channels) <=
                             device::cuda::workspace_bytes,
                         "{} tokens in a micro-batch are too many to sort", tokens.elements);
          cuda::embedding_backward(
              dwte.as<float>(), places, dout.as<T>(), tokens.as<std::int32_t>(),
              {shape.batch, shape.time, shape.channels, shape.vocabulary}, dropout,
              device::cuda::workspace_of(stream), device::cuda::workspace_bytes, raw);
        }))
      return;
    on_cpu(stream, "embedding_backward")
        .run([token = dwte.as<float>(), position = places, from = dout.as<T>(),
              ids = tokens.as<std::int32_t>(), shape,
              dropout] { cpu::embedding_backward(token, position, from, ids, shape, dropout); });
  });
}

}  // namespace trireme::ops
