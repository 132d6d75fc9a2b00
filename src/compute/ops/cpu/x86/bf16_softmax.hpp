// SPDX-License-Identifier: Apache-2.0
// What attention in bf16 does between its products, of a tile of 64 queries by 64 keys: scores in
// fp32 become probabilities in bf16, forward and backward. Sums and maxima stay fp32.
// 1. Exponents are to base 2, so that a score takes one fused multiply-add on its way to 2^x: the
//    factor is scale * log2(e), and maxima are in the same units.
// 2. Hidden keys (Seen, bf16_tile.hpp) become zero; their scores count for nothing, so the products
//    need not have computed them. Tiles that hide nothing use no masks and give the same bits.
// 3. A row's bits do not depend on other rows: the sums over its 64 keys have one order.
#pragma once

#include <array>
#include <cmath>

#include "ops/cpu/attention_tiles.hpp"
#include "ops/cpu/products.hpp"
#include "ops/cpu/x86/bf16_tile.hpp"

namespace trireme::ops::cpu::bf16_attention {

using avx512::lanes;
using avx512::power_of_two;

inline constexpr int score_vectors = tile / lanes;
inline constexpr float log2_e = 1.44269504F, ln_2 = 0.693147181F;

/// The maximum of a row that has seen no key: finite, so that a tile of which it sees no key
/// multiplies its sums by 2^0 and adds zeros.
inline constexpr float no_maximum = -1e30F;

/// How across() combines two registers.
struct Largest {
  TRIREME_AVX512_INLINE __m512 operator()(__m512 a, __m512 b) const { return _mm512_max_ps(a, b); }
};
struct Sum {
  TRIREME_AVX512_INLINE __m512 operator()(__m512 a, __m512 b) const { return _mm512_add_ps(a, b); }
};

/// Lane r of the result combines the lanes of line[r]: a transposition of 16 x 16 that combines as
/// it goes, 15 combinations for sixteen rows where one row after the other would take 64.
template <class Combine>
TRIREME_AVX512_INLINE __m512 across(const float (*line)[lanes], const Combine& combine) {
  __m512 half[8], quarter[4], eighth[2];
#pragma GCC unroll 8
  for (std::int64_t i = 0; i < 8; ++i) {
    const __m512 a = _mm512_load_ps(line[2 * i]), b = _mm512_load_ps(line[2 * i + 1]);
    half[i] = combine(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  }
#pragma GCC unroll 4
  for (std::int64_t i = 0; i < 4; ++i) {
    const __m512d a = _mm512_castps_pd(half[2 * i]), b = _mm512_castps_pd(half[2 * i + 1]);
    quarter[i] = combine(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),
                         _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
  }
#pragma GCC unroll 2
  for (std::int64_t i = 0; i < 2; ++i)
    eighth[i] = combine(_mm512_shuffle_f32x4(quarter[2 * i], quarter[2 * i + 1], 0x88),
                        _mm512_shuffle_f32x4(quarter[2 * i], quarter[2 * i + 1], 0xdd));
  return combine(_mm512_shuffle_f32x4(eighth[0], eighth[1], 0x88),
                 _mm512_shuffle_f32x4(eighth[0], eighth[1], 0xdd));
}

/// The largest scores of 16 rows from `row` on, by lanes; what is hidden counts for nothing.
template <bool masked>
TRIREME_AVX512_INLINE __m512 largest_scores(const float* scores,
                                            std::int64_t row,
                                            const Seen& seen) {
  alignas(64) float line[lanes][lanes];
  const __m512 least = _mm512_set1_ps(-__builtin_inff());
  for (std::int64_t r = 0; r < lanes; ++r) {
    const float* from = scores + (row + r) * tile;
    const std::uint64_t keys = masked ? seen.keys_of(row + r) : 0;
    __m512 s[score_vectors];
#pragma GCC unroll 4
    for (int v = 0; v < score_vectors; ++v)
      s[v] = masked ? _mm512_mask_loadu_ps(least, static_cast<__mmask16>(keys >> (v * lanes)),
                                           from + v * lanes)
                    : _mm512_loadu_ps(from + v * lanes);
    _mm512_store_ps(line[r], _mm512_max_ps(_mm512_max_ps(s[0], s[1]), _mm512_max_ps(s[2], s[3])));
  }
  return across(line, Largest());
}

/// 16 rows from `row` on become powers of two against `base`; their sums by lanes.
template <bool masked>
TRIREME_AVX512_INLINE __m512 to_powers(Bf16* to,
                                       const float* scores,
                                       std::int64_t row,
                                       const float* base,
                                       const __m512& factor,
                                       const Seen& seen) {
  alignas(64) float line[lanes][lanes];
  for (std::int64_t r = 0; r < lanes; ++r) {
    const std::int64_t at = (row + r) * tile;
    const __m512 most = _mm512_set1_ps(base[row + r]);
    const std::uint64_t keys = masked ? seen.keys_of(row + r) : 0;
    __m512 e[score_vectors];
#pragma GCC unroll 4
    for (int v = 0; v < score_vectors; ++v) {
      const auto keep = static_cast<__mmask16>(masked ? keys >> (v * lanes) : 0xffffU);
      const __m512 s = _mm512_maskz_loadu_ps(keep, scores + at + v * lanes);
      e[v] = power_of_two(_mm512_fmsub_ps(s, factor, most));
      if constexpr (masked)
        e[v] = _mm512_maskz_mov_ps(keep, e[v]);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + at + v * lanes),
                          (__m256i)_mm512_cvtneps_pbh(e[v]));
    }
    _mm512_store_ps(line[r], _mm512_add_ps(_mm512_add_ps(e[0], e[1]), _mm512_add_ps(e[2], e[3])));
  }
  return across(line, Sum());
}

/// Rows of 64 scores become probabilities in bf16, against the rows' running maximum and sum, both
/// without the log's base: maximum[r] is in units of log2. shrink[r] is what the row's earlier sums
/// are to be multiplied by. `masked`: of tiles with hidden keys.
template <bool masked>
TRIREME_AVX512 inline void softmax(Bf16* to,
                                   const float* scores,
                                   float* maximum,
                                   float* total,
                                   float* shrink,
                                   float scale,
                                   const Seen& seen) {
  const __m512 factor = _mm512_set1_ps(scale * log2_e);
  for (std::int64_t row = 0; row < tile; row += lanes) {
    const __m512 before = _mm512_load_ps(maximum + row);
    const __m512 now =
        _mm512_max_ps(before, _mm512_mul_ps(largest_scores<masked>(scores, row, seen), factor));
    const __m512 less = power_of_two(_mm512_sub_ps(before, now));
    _mm512_store_ps(maximum + row, now);
    _mm512_store_ps(shrink + row, less);
    const __m512 sums = to_powers<masked>(to, scores, row, maximum, factor, seen);
    _mm512_store_ps(total + row, _mm512_fmadd_ps(_mm512_load_ps(total + row), less, sums));
  }
}

inline float log_sum_of(float maximum, float total) {
  return (maximum + std::log2(total)) * ln_2;
}

/// Multiplies the rows' sums so far by a factor each; most factors are 1 after a few tiles.
TRIREME_AVX512 inline void shrink_rows(float* sums, const float* factors, std::int64_t channels) {
  for (std::int64_t r = 0; r < tile; ++r) {
    if (factors[r] == 1)
      continue;
    const __m512 factor = _mm512_set1_ps(factors[r]);
    for (std::int64_t i = r * channels; i < (r + 1) * channels; i += lanes)
      _mm512_storeu_ps(sums + i, _mm512_mul_ps(_mm512_loadu_ps(sums + i), factor));
  }
}

/// From transposed scores and dP to P and dS = P (dP - delta) in bf16; rows are keys. Queries are
/// the columns here, so log_sums and delta are read once for sixteen queries, and a mask names
/// queries. `masked`: of tiles with hidden keys.
template <bool masked>
TRIREME_AVX512 inline void softmax_backward(Bf16* p,
                                            Bf16* ds,
                                            const float* scores,
                                            const float* dp,
                                            const float* log_sums,
                                            const float* delta,
                                            float scale,
                                            const Seen& seen) {
  const __m512 factor = _mm512_set1_ps(scale * log2_e);
#pragma GCC unroll 4
  for (int v = 0; v < score_vectors; ++v) {
    const __m512 log_sum =
        _mm512_mul_ps(_mm512_loadu_ps(log_sums + v * lanes), _mm512_set1_ps(log2_e));
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
      __m512 e =
          power_of_two(_mm512_fmsub_ps(_mm512_maskz_loadu_ps(keep, scores + at), factor, log_sum));
      __m512 d = _mm512_mul_ps(e, _mm512_sub_ps(_mm512_maskz_loadu_ps(keep, dp + at), mean));
      if constexpr (masked) {
        e = _mm512_maskz_mov_ps(keep, e);
        d = _mm512_maskz_mov_ps(keep, d);
      }
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + at), (__m256i)_mm512_cvtneps_pbh(e));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(ds + at), (__m256i)_mm512_cvtneps_pbh(d));
    }
  }
}

}  // namespace trireme::ops::cpu::bf16_attention
