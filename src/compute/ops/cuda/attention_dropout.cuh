// SPDX-License-Identifier: Apache-2.0
// Dropout of tiles of scores (attention_tiles.cuh), with the mask of dropout_factor(). If the
// context is a multiple of 4, one draw gives four scores, which belong to different lanes.
#pragma once

#include "ops/cuda/attention_head.cuh"
#include "ops/cuda/loops.cuh"
#include "ops/dropout.hpp"

namespace trireme::ops::cuda {

/// Which of a lane's scores are kept: bit 4 n + i is score i of block n. Blocks are 16 rows by 8
/// columns, side by side. All lanes of a warp call together, each for its own scores.
struct TileDropout {
  const Dropout& dropout;
  const Head& head;

  __device__ float factor() const { return dropout.active() ? 1.0F / (1.0F - dropout.rate) : 1.0F; }
  /// Rows are queries t and t + 8, columns keys s, s + 1, s + 8, s + 9 and so on.
  template <int Blocks>
  __device__ std::uint32_t kept_of_queries(std::int64_t t, std::int64_t s) const {
    if (!dropout.active())
      return ~0U;
    std::uint32_t kept = 0;
#pragma unroll 1  // one draw at a time takes few registers
    for (int n = 0; n < Blocks; ++n, s += 8)
      kept |= (head.time % 4 == 0 ? four_of_queries(t, s) : four(t, s, 8, 0, 0, 1)) << (4 * n);
    return kept;
  }
  /// Rows are keys s and s + 8, columns queries t, t + 1, t + 8, t + 9 and so on.
  template <int Blocks>
  __device__ std::uint32_t kept_of_keys(std::int64_t s, std::int64_t t) const {
    if (!dropout.active())
      return ~0U;
    std::uint32_t kept = 0;
#pragma unroll 1
    for (int n = 0; n < Blocks; ++n, t += 8)
      kept |= (head.time % 4 == 0 ? four_of_keys(s, t) : four(t, s, 0, 8, 1, 0)) << (4 * n);
    return kept;
  }

  __device__ std::uint64_t element(std::int64_t t, std::int64_t s) const {
    return static_cast<std::uint64_t>((head.h * head.time + t) * head.time + s);
  }
  /// Four scores, each drawn separately. t and s increase by these numbers from one row to the
  /// other and from one column to the next.
  __device__ std::uint32_t four(
      std::int64_t t, std::int64_t s, int row_t, int row_s, int column_t, int column_s) const {
    std::uint32_t kept = 0;
    for (int i = 0; i < 4; ++i) {
      const std::int64_t query = t + i / 2 * row_t + i % 2 * column_t;
      const std::int64_t key = s + i / 2 * row_s + i % 2 * column_s;
      if (dropout_factor(dropout, static_cast<std::uint64_t>(head.b), element(query, key)) > 0)
        kept |= 1U << i;
    }
    return kept;
  }
  /// For elements (t, s) to (t, s + 3), where the context and s are multiples of 4.
  __device__ Words4 draw(std::int64_t t, std::int64_t s) const {
    return philox(dropout.key, (std::uint64_t{dropout.site} << 40U) + element(t, s) / 4,
                  *dropout.first_sample + static_cast<std::uint64_t>(head.b));
  }
  __device__ std::uint32_t bits(std::uint32_t w0,
                                std::uint32_t w1,
                                std::uint32_t w2,
                                std::uint32_t w3) const {
    const float rate = dropout.rate;
    return (uniform(w0) < rate ? 0U : 1U) | (uniform(w1) < rate ? 0U : 2U) |
           (uniform(w2) < rate ? 0U : 4U) | (uniform(w3) < rate ? 0U : 8U);
  }

  /// Two lanes share the draws of two queries: the even lane draws for t, the odd one for t + 8.
  __device__ std::uint32_t four_of_queries(std::int64_t t, std::int64_t s) const {
    const bool odd = threadIdx.x % 2 != 0;
    const Words4 words = odd ? draw(t + 8, s - 2) : draw(t, s);
    const std::uint32_t first = __shfl_xor_sync(0xffffffffU, odd ? words.w[0] : words.w[2], 1);
    const std::uint32_t second = __shfl_xor_sync(0xffffffffU, odd ? words.w[1] : words.w[3], 1);
    return odd ? bits(first, second, words.w[2], words.w[3])
               : bits(words.w[0], words.w[1], first, second);
  }
  /// Each of four lanes with consecutive keys draws one of their common scores for all four. Then
  /// word j of lane i becomes word i of lane j.
  __device__ std::uint32_t four_of_keys(std::int64_t s, std::int64_t t) const {
    const int i = static_cast<int>(threadIdx.x) / 4 % 4;
    Words4 words = draw(t + i % 2, s - i + i / 2 * 8);
    swap(words.w[0], words.w[1], i % 2 != 0, 4);
    swap(words.w[2], words.w[3], i % 2 != 0, 4);
    swap(words.w[0], words.w[2], i / 2 != 0, 8);
    swap(words.w[1], words.w[3], i / 2 != 0, 8);
    return bits(words.w[0], words.w[1], words.w[2], words.w[3]);
  }
  /// Exchanges the lower lane's `high` and the upper one's `low`, `distance` lanes apart.
  __device__ static void swap(std::uint32_t& low, std::uint32_t& high, bool upper, int distance) {
    const std::uint32_t taken = __shfl_xor_sync(0xffffffffU, upper ? low : high, distance);
    if (upper)
      low = taken;
    else
      high = taken;
  }
};

__device__ inline float dropped(float value, float factor, std::uint32_t kept, int n, int i) {
  return (kept >> (4 * n + i) & 1U) != 0 ? value * factor : 0.0F;
}

}  // namespace trireme::ops::cuda
