// SPDX-License-Identifier: Apache-2.0
// CUDA bodies of embedding.hpp; T is float or Bf16. Null `wpe` and `dwpe`: tokens alone. Backward
// sorts the positions by token in its workspace. A block adds up a token's rows within a stretch of
// 64 or more sorted positions, and a second kernel the sums of a token that is in several, both in
// the order of the positions: no atomic additions, and the same bits in every run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cuda/raw_stream.hpp"

#include "ops/dropout.hpp"

namespace trireme::ops::cuda {

using device::cuda::RawStream;

struct EmbeddingSizes {
  std::int64_t batch, time, channels, vocabulary;
};

template <class T>
void embedding_forward(T* out,
                       const std::int32_t* tokens,
                       const T* wte,
                       const T* wpe,
                       const EmbeddingSizes& sizes,
                       const Dropout& dropout,
                       RawStream stream);

/// Bytes of workspace that backward needs at the least.
std::size_t embedding_backward_bytes(std::int64_t tokens, std::int64_t channels);
template <class T>
void embedding_backward(float* dwte,
                        float* dwpe,
                        const T* dout,
                        const std::int32_t* tokens,
                        const EmbeddingSizes& sizes,
                        const Dropout& dropout,
                        std::byte* workspace,
                        std::size_t workspace_bytes,
                        RawStream stream);

}  // namespace trireme::ops::cuda
