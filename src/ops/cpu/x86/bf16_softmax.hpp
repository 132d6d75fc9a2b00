// SPDX-License-Identifier: Apache-2.0
// What attention in bf16 does between its products, of a tile of 64 queries by 64 keys: scores in
// fp32 become probabilities in bf16, forward and backward. Sums and maxima stay fp32.
#pragma once

#include <array>

#include "ops/cpu/x86/avx512_attention.hpp"
#include "ops/cpu/x86/avx512_block.hpp"

namespace trireme::ops::cpu::avx512 {

/// Queries and keys of a tile.
inline constexpr std::int64_t tile_edge = score_columns;
inline constexpr int score_vectors = tile_edge / lanes;

/// Columns [16 v, 16 v + 16) of a row of 64 scores, scaled; what does not count is -infinity.
TRIREME_AVX512_BF16_INLINE __m512 scaled_scores(const float* row,
                                                int v,
                                                std::int64_t valid,
                                                const __m512& scale) {
  const __mmask16 keep = counted(v, valid);
  return _mm512_mask_mul_ps(_mm512_set1_ps(-__builtin_inff()), keep, scale,
                            _mm512_maskz_loadu_ps(keep, row + v * lanes));
}

/// Rows of 64 scores become exponentials in bf16, against the rows' running maximum and sum;
/// shrink[r] is what the row's earlier sums are to be multiplied by.
TRIREME_AVX512_BF16 inline void softmax(Bf16* to,
                                        const float* scores,
                                        float* maximum,
                                        float* total,
                                        float* shrink,
                                        float scale,
                                        bool diagonal) {
  const __m512 factor = _mm512_set1_ps(scale);
  alignas(64) std::array<float, tile_edge> per_row;
  for (std::int64_t r = 0; r < tile_edge; ++r) {
    const float* row = scores + r * tile_edge;
    const std::int64_t valid = diagonal ? r + 1 : tile_edge;
    const __m512 left =
        _mm512_max_ps(scaled_scores(row, 0, valid, factor), scaled_scores(row, 1, valid, factor));
    const __m512 right =
        _mm512_max_ps(scaled_scores(row, 2, valid, factor), scaled_scores(row, 3, valid, factor));
    per_row[static_cast<std::size_t>(r)] = _mm512_reduce_max_ps(_mm512_max_ps(left, right));
  }
  for (std::int64_t r = 0; r < tile_edge; r += lanes) {
    const __m512 before = _mm512_load_ps(maximum + r);
    const __m512 now = _mm512_max_ps(before, _mm512_load_ps(per_row.data() + r));
    _mm512_store_ps(maximum + r, now);
    _mm512_store_ps(shrink + r, exponential(_mm512_sub_ps(before, now)));
  }
  for (std::int64_t r = 0; r < tile_edge; ++r) {
    const __m512 base = _mm512_set1_ps(maximum[r]);
    __m512 e[score_vectors];
#pragma GCC unroll 4
    for (int v = 0; v < score_vectors; ++v) {
      const __m512 s =
          scaled_scores(scores + r * tile_edge, v, diagonal ? r + 1 : tile_edge, factor);
      e[v] = exponential(_mm512_sub_ps(s, base));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + r * tile_edge + v * lanes),
                          (__m256i)_mm512_cvtneps_pbh(e[v]));
    }
    per_row[static_cast<std::size_t>(r)] =
        _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(e[0], e[1]), _mm512_add_ps(e[2], e[3])));
  }
  for (std::int64_t r = 0; r < tile_edge; r += lanes)
    _mm512_store_ps(total + r,
                    _mm512_fmadd_ps(_mm512_load_ps(total + r), _mm512_load_ps(shrink + r),
                                    _mm512_load_ps(per_row.data() + r)));
}

/// What rows have gathered so far, times their factor each, plus what the last tile brought.
TRIREME_AVX512_BF16 inline void shrink_and_add(float* sums,
                                               const float* more,
                                               const float* factors,
                                               std::int64_t channels) {
  for (std::int64_t r = 0; r < tile_edge; ++r) {
    const __m512 factor = _mm512_set1_ps(factors[r]);
    for (std::int64_t i = r * channels; i < (r + 1) * channels; i += lanes)
      _mm512_storeu_ps(
          sums + i, _mm512_fmadd_ps(_mm512_loadu_ps(sums + i), factor, _mm512_loadu_ps(more + i)));
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
                                                 bool diagonal) {
  const __m512 factor = _mm512_set1_ps(scale);
#pragma GCC unroll 4
  for (int v = 0; v < score_vectors; ++v) {
    const __m512 log_sum = _mm512_loadu_ps(log_sums + v * lanes);
    const __m512 mean = _mm512_loadu_ps(delta + v * lanes);
    for (std::int64_t r = 0; r < tile_edge; ++r) {
      const std::int64_t at = r * tile_edge + v * lanes;
      // Queries before this key do not see it.
      const auto keep = static_cast<__mmask16>(diagonal ? ~first_lanes(r - v * lanes) : 0xffffU);
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

}  // namespace trireme::ops::cpu::avx512
