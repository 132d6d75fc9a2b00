// SPDX-License-Identifier: Apache-2.0
// Where a head's rows are, for all kernels of attention.
#pragma once

#include <cmath>
#include <cstdint>

#include "ops/cuda/attention.hpp"
#include "ops/cuda/loops.cuh"

namespace trireme::ops::cuda {

/// Where one (b, h) is. Rows of q, k, v are `step` apart, those of out `heads · D`.
struct Head {
  std::int64_t b, h, time, D, step, out_step;
  std::int64_t q, k, v, out, stats;

  __device__ Head(const AttentionSizes& s, std::int64_t sample, std::int64_t head)
      : b(sample),
        h(head),
        time(s.time),
        D(s.head_channels),
        step((s.heads + 2 * s.key_value_heads) * D),
        out_step(s.heads * D) {
    stats = (b * s.heads + h) * time;
    q = b * time * step + h * D;
    k = b * time * step + out_step + h / (s.heads / s.key_value_heads) * D;
    v = k + s.key_value_heads * D;
    out = b * time * out_step + h * D;
  }
};

inline float scale_of(const AttentionSizes& s) {
  return 1.0F / sqrtf(static_cast<float>(s.head_channels));
}

}  // namespace trireme::ops::cuda
