// SPDX-License-Identifier: Apache-2.0
// What attention in bf16 does between its products, of a tile of 64 queries by 64 keys: scores in
// fp32 become probabilities in bf16, forward and backward. Sums and maxima stay fp32. Hidden keys
// (Seen, bf16_tile.hpp) become zero; their scores are not read, so the products need not have
// computed them. Tiles that hide nothing are computed without masks, with the same bits.
#pragma once

#include <array>
#include <limits>

#include "ops/cpu/x86/avx512_attention.hpp"
#include "ops/cpu/x86/avx512_block.hpp"
#include "ops/cpu/x86/bf16_tile.hpp"

namespace trireme::ops::cpu::bf16_attention {

using avx512::exponential;
using avx512::lanes;

inline constexpr int score_vectors = tile / lanes;

/// The maximum of a row that has seen nothing: finite, so that a tile which it sees nothing of
/// multiplies its sums by e^0 and adds zeros.
inline constexpr float no_maximum = std::numeric_limits<float>::lowest();

/// Columns [16 v, 16 v + 16) of a row of 64 scores, scaled; where `masked`, what `keys` has no bit
/// for is -infinity.
template <bool masked>
TRIREME_AVX512_BF16_INLINE __m512
scaled_scores(const float* row, int v, std::uint64_t keys, const __m512& scale) {
  if constexpr (!masked)
    return _mm512_mul_ps(scale, _mm512_loadu_ps(row + v * lanes));
  const auto keep = static_cast<__mmask16>(keys >> (v * lanes));
  return _mm512_mask_mul_ps(_mm512_set1_ps(-__builtin_inff()), keep, scale,
                            _mm512_maskz_loadu_ps(keep, row + v * lanes));
}

template <bool masked>
TRIREME_AVX512_BF16 inline void softmax_of(Bf16* to,
                                           const float* scores,
                                           float* maximum,
                                           float* total,
                                           float* shrink,
                                           float scale,
                                           const Seen& seen) {
  const __m512 factor = _mm512_set1_ps(scale);
  alignas(64) std::array<float, tile> per_row;
  for (std::int64_t r = 0; r < tile; ++r) {
    const float* row = scores + r * tile;
    const std::uint64_t keys = masked ? seen.keys_of(r) : 0;
    const __m512 left = _mm512_max_ps(scaled_scores<masked>(row, 0, keys, factor),
                                      scaled_scores<masked>(row, 1, keys, factor));
    const __m512 right = _mm512_max_ps(scaled_scores<masked>(row, 2, keys, factor),
                                       scaled_scores<masked>(row, 3, keys, factor));
    per_row[static_cast<std::size_t>(r)] = _mm512_reduce_max_ps(_mm512_max_ps(left, right));
  }
  for (std::int64_t r = 0; r < tile; r += lanes) {
    const __m512 before = _mm512_load_ps(maximum + r);
    const __m512 now = _mm512_max_ps(before, _mm512_load_ps(per_row.data() + r));
    _mm512_store_ps(maximum + r, now);
    _mm512_store_ps(shrink + r, exponential(_mm512_sub_ps(before, now)));
  }
  for (std::int64_t r = 0; r < tile; ++r) {
    const __m512 base = _mm512_set1_ps(maximum[r]);
    const std::uint64_t keys = masked ? seen.keys_of(r) : 0;
    __m512 e[score_vectors];
#pragma GCC unroll 4
    for (int v = 0; v < score_vectors; ++v) {
      const __m512 s = scaled_scores<masked>(scores + r * tile, v, keys, factor);
      e[v] = exponential(_mm512_sub_ps(s, base));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + r * tile + v * lanes),
                          (__m256i)_mm512_cvtneps_pbh(e[v]));
    }
    per_row[static_cast<std::size_t>(r)] =
        _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(e[0], e[1]), _mm512_add_ps(e[2], e[3])));
  }
  for (std::int64_t r = 0; r < tile; r += lanes)
    _mm512_store_ps(total + r,
                    _mm512_fmadd_ps(_mm512_load_ps(total + r), _mm512_load_ps(shrink + r),
                                    _mm512_load_ps(per_row.data() + r)));
}

/// Rows of 64 scores become exponentials in bf16, against the rows' running maximum and sum;
/// shrink[r] is what the row's earlier sums are to be multiplied by.
TRIREME_AVX512_BF16 inline void softmax(Bf16* to,
                                        const float* scores,
                                        float* maximum,
                                        float* total,
                                        float* shrink,
                                        float scale,
                                        const Seen& seen) {
  if (seen.all)
    softmax_of<false>(to, scores, maximum, total, shrink, scale, seen);
  else
    softmax_of<true>(to, scores, maximum, total, shrink, scale, seen);
}

/// What rows have gathered so far, times their factor each, plus what the last tile brought.
TRIREME_AVX512_BF16 inline void shrink_and_add(float* sums,
                                               const float* more,
                                               const float* factors,
                                               std::int64_t channels) {
  for (std::int64_t r = 0; r < tile; ++r) {
    const __m512 factor = _mm512_set1_ps(factors[r]);
    for (std::int64_t i = r * channels; i < (r + 1) * channels; i += lanes)
      _mm512_storeu_ps(
          sums + i, _mm512_fmadd_ps(_mm512_loadu_ps(sums + i), factor, _mm512_loadu_ps(more + i)));
  }
}

template <bool masked>
TRIREME_AVX512_BF16 inline void softmax_backward_of(Bf16* p,
                                                    Bf16* ds,
                                                    const float* scores,
                                                    const float* dp,
                                                    const float* log_sums,
                                                    const float* delta,
                                                    float scale,
                                                    const Seen& seen) {
  const __m512 factor = _mm512_set1_ps(scale);
#pragma GCC unroll 4
  for (int v = 0; v < score_vectors; ++v) {
    const __m512 log_sum = _mm512_loadu_ps(log_sums + v * lanes);
    const __m512 mean = _mm512_loadu_ps(delta + v * lanes);
    const __m512i first =
        masked ? _mm512_load_si512(seen.first.data() + v * lanes) : _mm512_setzero_si512();
    for (std::int64_t r = 0; r < tile; ++r) {
      const std::int64_t at = r * tile + v * lanes;
      __mmask16 keep = 0xffffU;
      if constexpr (masked) {
        keep = _mm512_cmple_epi32_mask(first, _mm512_set1_epi32(static_cast<int>(r)));
        if (seen.diagonal)  // queries before this key do not see it
          keep = static_cast<__mmask16>(keep & ~avx512::first_lanes(r - v * lanes));
      }
      const __m512 e =
          exponential(_mm512_fmsub_ps(_mm512_maskz_loadu_ps(keep, scores + at), factor, log_sum));
      const __m512 d = _mm512_mul_ps(e, _mm512_sub_ps(_mm512_maskz_loadu_ps(keep, dp + at), mean));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + at),
                          (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_mov_ps(keep, e)));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(ds + at),
                          (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_mov_ps(keep, d)));
    }
  }
}

/// From transposed scores and dP to P and dS = P (dP - delta) in bf16; rows are keys.
TRIREME_AVX512_BF16 inline void softmax_backward(Bf16* p,
                                                 Bf16* ds,
                                                 const float* scores,
                                                 const float* dp,
                                                 const float* log_sums,
                                                 const float* delta,
                                                 float scale,
                                                 const Seen& seen) {
  if (seen.all)
    softmax_backward_of<false>(p, ds, scores, dp, log_sums, delta, scale, seen);
  else
    softmax_backward_of<true>(p, ds, scores, dp, log_sums, delta, scale, seen);
}

}  // namespace trireme::ops::cpu::bf16_attention
