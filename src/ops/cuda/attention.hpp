// SPDX-License-Identifier: Apache-2.0
// Our own attention kernels: for fp32, which cuDNN's fused attention does not have, for dropout,
// whose mask must be ours, for grouped heads, and for head sizes that cuDNN refuses. Written to be
// right, not to be fast. T is float or Bf16.
#pragma once

#include <cstdint>

#include "device/cuda/raw_stream.hpp"

#include "ops/dropout.hpp"

namespace trireme::ops::cuda {

using device::cuda::RawStream;

/// As AttentionShape, whose `group` is heads / key_value_heads. A window of 0 is none.
struct AttentionSizes {
  std::int64_t batch, time, heads, head_channels, key_value_heads, window;
};
/// A lane of a warp owns at most eight channels of a head.
inline constexpr std::int64_t most_head_channels = 256;

/// `starts`: null where there are no documents.
template <class T>
void attention_forward(T* out,
                       float* lse,
                       const T* qkv,
                       const std::int32_t* starts,
                       const AttentionSizes& sizes,
                       const Dropout& dropout,
                       RawStream stream);

/// What backward reads.
template <class T>
struct AttentionSaved {
  const T* dout;
  const T* qkv;
  const T* out;
  const float* lse;
  const std::int32_t* starts;
};
/// `delta` = [B, H, T] of scratch.
template <class T>
void attention_backward(T* dqkv,
                        const AttentionSaved<T>& saved,
                        float* delta,
                        const AttentionSizes& sizes,
                        const Dropout& dropout,
                        RawStream stream);

}  // namespace trireme::ops::cuda
