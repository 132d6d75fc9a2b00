// SPDX-License-Identifier: Apache-2.0
// Our own attention kernels: for fp32, which cuDNN's fused attention does not support; for dropout,
// whose mask must be ours; for grouped heads, windows and documents; and for head sizes that cuDNN
// refuses. T is float or Bf16.
// 1. The kernels of attention.cu support any heads of up to most_head_channels. They use a warp per
//    row and no tensor cores, and favour simplicity over speed.
// 2. The tiled kernels (attention_tiles.cuh) multiply in bf16 on tensor cores and accumulate in
//    fp32. Like the CPU's bf16 kernels and cuDNN's, they round P, and in backward dS, to bf16
//    before the second product; lse is computed from unrounded values.
// 3. All use the same dropout masks, write the same lse and delta up to rounding, and sum in an
//    order that depends only on positions and heads, not on the other samples.
#pragma once

#include <cstdint>

#include "base/dtype.hpp"
#include "device/cuda/raw_stream.hpp"

#include "ops/attention_calls.hpp"

namespace trireme::ops::cuda {

using device::cuda::RawStream;

/// As AttentionShape, whose `group` is heads / key_value_heads. A window of 0: no window.
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

/// For shapes for which suits_tiles() holds (attention_backend.hpp). bf16 is aligned to 16 bytes.
void tiled_attention_forward(const AttentionForward& call,
                             const AttentionSizes& sizes,
                             RawStream stream);
void tiled_attention_backward(const AttentionBackward& call,
                              float* delta,
                              const AttentionSizes& sizes,
                              RawStream stream);

/// The arguments of the backward kernels.
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
