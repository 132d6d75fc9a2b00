// SPDX-License-Identifier: Apache-2.0
// How the AMX matmul packs operands that are stored across K: [K, M] or [K, N], as in the gradients
// of a linear layer. A row of such an operand has one element of K for many rows or columns of the
// product. These functions use whole cache lines of it and prefetch the rows that follow, since a
// large operand comes from memory or from the third-level cache.
//
// The layouts, and so the bits, are those of pack_kernels.hpp, whose functions pack what is not a
// whole tile: the last rows or columns, and the end of K.
#pragma once

#include "ops/cpu/products.hpp"

namespace trireme::ops::cpu::amx {

using avx512::lanes;
using avx512::panel_columns;

/// Rows [row, row + rows) of a transposed A as avx512::pack_rows() does, 32 at a time. With
/// `summed`, sums[r] becomes the sum of row row + r over these units: 32 numbers at a time are
/// added up by the dot product of pairs, whose unit has nothing to do while others transpose.
/// Requires: multiples of 32 rows and of 16 units.
template <bool summed>
TRIREME_AVX512 inline void pack_whole_rows(Unit* to,
                                           std::int64_t stride,
                                           const Stored& a,
                                           std::int64_t row,
                                           std::int64_t rows,
                                           std::int64_t begin,
                                           std::int64_t end,
                                           float* sums) {
  const auto ones = (__m512bh)_mm512_set1_epi32(0x3f803f80);
  if constexpr (summed)
    std::fill(sums, sums + rows, 0.0F);
  constexpr std::int64_t at_once = 2 * lanes;
  const std::int64_t row_bytes = 2 * a.columns;
  for (std::int64_t unit = begin; unit < end; unit += lanes)
    for (std::int64_t r = 0; r < rows; r += at_once) {
      const std::byte* at = a.data + 2 * (2 * unit * a.columns + row + r);
      const std::byte* ahead = at + 2 * lanes * row_bytes;  // what follows along K
      __m512i low[16], high[16];
      __m512 low_sum = _mm512_setzero_ps(), high_sum = low_sum;
#pragma GCC unroll 16
      for (std::int64_t i = 0; i < lanes; ++i) {
        const __m512i first = _mm512_loadu_si512(at + 2 * i * row_bytes);
        const __m512i second = _mm512_loadu_si512(at + (2 * i + 1) * row_bytes);
        __builtin_prefetch(ahead + 2 * i * row_bytes, 0, 2);
        __builtin_prefetch(ahead + (2 * i + 1) * row_bytes, 0, 2);
        low[i] = _mm512_unpacklo_epi16(first, second);
        high[i] = _mm512_unpackhi_epi16(first, second);
        if constexpr (summed) {
          low_sum = _mm512_dpbf16_ps(low_sum, (__m512bh)low[i], ones);
          high_sum = _mm512_dpbf16_ps(high_sum, (__m512bh)high[i], ones);
        }
      }
      // unpacklo takes four of every eight rows and unpackhi the other four.
      if constexpr (summed) {
        const __m512i upper =
            _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
        const __m512i lower = _mm512_add_epi32(upper, _mm512_set1_epi32(8));
        float* at_row = sums + r;
        _mm512_storeu_ps(at_row, _mm512_add_ps(_mm512_loadu_ps(at_row),
                                               _mm512_permutex2var_ps(low_sum, upper, high_sum)));
        _mm512_storeu_ps(at_row + lanes,
                         _mm512_add_ps(_mm512_loadu_ps(at_row + lanes),
                                       _mm512_permutex2var_ps(low_sum, lower, high_sum)));
      }
      avx512::transpose(low);
      avx512::transpose(high);
      Unit* out = to + r * stride + unit - begin;
#pragma GCC unroll 16
      for (std::int64_t i = 0; i < lanes; ++i) {
        _mm512_storeu_si512(out + (i / 4 * 8 + i % 4) * stride, low[i]);
        _mm512_storeu_si512(out + (i / 4 * 8 + 4 + i % 4) * stride, high[i]);
      }
    }
}

/// Which 16-bit numbers of two registers make pairs: r of both, for sixteen r from `first` on.
TRIREME_AVX512_INLINE __m512i paired(std::int64_t first) {
  const __m512i r =
      _mm512_add_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                       _mm512_set1_epi32(static_cast<int>(first)));
  const __m512i of_second = _mm512_add_epi32(r, _mm512_set1_epi32(2 * lanes));
  return _mm512_or_si512(r, _mm512_slli_epi32(of_second, 16));
}

/// Panels [first, last) of a B stored [K, N] as avx512::pack_b() does, `panel_units` apart, row by
/// row of B. Requires: all columns of the panels exist.
TRIREME_AVX512 inline void pack_whole_panels(Unit* to,
                                             std::int64_t panel_units,
                                             const Stored& b,
                                             std::int64_t first,
                                             std::int64_t last,
                                             std::int64_t begin,
                                             std::int64_t end) {
  constexpr std::int64_t rows_ahead = 16;
  const std::int64_t row_bytes = 2 * b.columns;
  const __m512i left = paired(0), right = paired(lanes);
  for (std::int64_t unit = begin; unit < end; ++unit, to += panel_columns) {
    const std::byte* at = b.data + 2 * (2 * unit * b.columns + first * panel_columns);
    Unit* out = to;
    for (std::int64_t panel = first; panel < last; ++panel, at += 64, out += panel_units) {
      const __m512i even = _mm512_loadu_si512(at), odd = _mm512_loadu_si512(at + row_bytes);
      __builtin_prefetch(at + rows_ahead * row_bytes, 0, 2);
      __builtin_prefetch(at + (rows_ahead + 1) * row_bytes, 0, 2);
      _mm512_storeu_si512(out, _mm512_permutex2var_epi16(even, left, odd));
      _mm512_storeu_si512(out + lanes, _mm512_permutex2var_epi16(even, right, odd));
    }
  }
}

}  // namespace trireme::ops::cpu::amx
