// SPDX-License-Identifier: Apache-2.0
// Our own attention kernels: for fp32, which cuDNN's fused attention does not have, for dropout,
// whose mask must be ours, for grouped heads, windows and documents, and for head sizes that cuDNN
// refuses. T is float or Bf16.
//
// 1. Those of attention.cu take any heads of up to most_head_channels, a warp per row, without
//    tensor cores: written to be right, not to be fast.
// 2. The tiled ones (attention_tiles.cuh) multiply in bf16 on tensor cores and add up in fp32. Like
//    the CPU's kernels in bf16 and cuDNN's, they round P, and in backward dS, to bf16 before the
//    second product; lse is of what was not rounded.
// 3. All of them draw the same masks of dropout, leave the same lse and delta up to rounding, and
//    add up in an order that depends on the positions and heads alone: not on the other samples.
#pragma once

#include <cstdint>

#include "base/dtype.hpp"
#include "device/cuda/raw_stream.hpp"

#include "ops/attention_calls.hpp"

namespace trireme::ops::cuda {

using device::cuda::RawStream;

/// As AttentionShape, whose `group` is heads / key_value_heads. A window of 0 is none.
struct AttentionSizes {
  std::int64_t batch, time, heads, head_channels, key_value_heads, window;
};
/// A lane of a warp owns at most eight channels of a head.
inline constexpr std::int64_t most_head_channels = 256;

template <class T>
void attention_forward(const AttentionForward& call, const AttentionSizes& sizes, RawStream stream);
/// `delta` = [B, H, T] of scratch.
template <class T>
void attention_backward(const AttentionBackward& call,
                        float* delta,
                        const AttentionSizes& sizes,
                        RawStream stream);

/// For what suits_tiles() names (attention_backend.hpp). Addresses of bf16 are multiples of 16.
void tiled_attention_forward(const AttentionForward& call,
                             const AttentionSizes& sizes,
                             RawStream stream);
void tiled_attention_backward(const AttentionBackward& call,
                              float* delta,
                              const AttentionSizes& sizes,
                              RawStream stream);

/// What the kernels of backward read.
template <class T>
struct AttentionSaved {
  explicit AttentionSaved(const AttentionBackward& call)
      : dout(call.dout.as<T>()),
        qkv(call.qkv.as<T>()),
        out(call.out.as<T>()),
        lse(call.lse.as<float>()),
        starts(call.starts.as_optional<std::int32_t>()) {}

  const T* dout;
  const T* qkv;
  const T* out;
  const float* lse;
  const std::int32_t* starts;
};

}  // namespace trireme::ops::cuda
