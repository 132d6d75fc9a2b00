// SPDX-License-Identifier: Apache-2.0
// How the AMX matmul packs operands that are stored across K: [K, M] or [K, N], as in the gradients
// of a linear layer. A row of such an operand has one element of K for many rows or columns of the
// product. These functions use whole cache lines of it and prefetch the rows that follow, since a
// large operand comes from memory or from the third-level cache.
//
// The layouts, and so the bits, are those of avx512_pack.hpp, whose functions pack what is not a
// whole tile: the last rows or columns, and the end of K.
#pragma once

#include "ops/cpu/x86/avx512_pack.hpp"

namespace trireme::ops::cpu::amx {

using avx512::lanes;
using avx512::panel_columns;

/// Rows [row, row + rows) of a transposed A as avx512::pack_rows() does, 32 at a time. Requires:
/// multiples of 32 rows and of 16 units.
TRIREME_AVX512 inline void pack_whole_rows(Unit* to,
                                           std::int64_t stride,
                                           const Stored& a,
                                           std::int64_t row,
                                           std::int64_t rows,
                                           std::int64_t begin,
                                           std::int64_t end) {
  constexpr std::int64_t at_once = 2 * lanes;
  const std::int64_t row_bytes = 2 * a.columns;
  for (std::int64_t unit = begin; unit < end; unit += lanes)
    for (std::int64_t r = 0; r < rows; r += at_once) {
      const std::byte* at = a.data + 2 * (2 * unit * a.columns + row + r);
      const std::byte* ahead = at + 2 * lanes * row_bytes;  // what follows along K
      __m512i low[16], high[16];
#pragma GCC unroll 16
      for (std::int64_t i = 0; i < lanes; ++i) {
        const __m512i first = _mm512_loadu_si512(at + 2 * i * row_bytes);
        const __m512i second = _mm512_loadu_si512(at + (2 * i + 1) * row_bytes);
        __builtin_prefetch(ahead + 2 * i * row_bytes, 0, 2);
        __builtin_prefetch(ahead + (2 * i + 1) * row_bytes, 0, 2);
        low[i] = _mm512_unpacklo_epi16(first, second);
        high[i] = _mm512_unpackhi_epi16(first, second);
      }
      avx512::transpose(low);
      avx512::transpose(high);
      // unpacklo takes four of every eight rows and unpackhi the other four.
      Unit* out = to + r * stride + unit - begin;
#pragma GCC unroll 16
      for (std::int64_t i = 0; i < lanes; ++i) {
        _mm512_storeu_si512(out + (i / 4 * 8 + i % 4) * stride, low[i]);
        _mm512_storeu_si512(out + (i / 4 * 8 + 4 + i % 4) * stride, high[i]);
      }
    }
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
  const __m512i left = avx512::paired(0), right = avx512::paired(lanes);
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
