// SPDX-License-Identifier: Apache-2.0
// How the AVX-512 matmul brings operands into the order in which its register blocks read them: the
// layouts of packed_operands.hpp, with panels of 32 columns of B and 12 rows of A. What a panel has
// beyond the matrix is zero.
//
// 1. Packing changes no number: it copies bits, or widens bf16, which is exact. Each element of B
//    is packed once per call and then read for every group of rows of C.
// 2. A matrix that is stored along K is brought into panels by transpositions of 16 x 16 units in
//    registers; one that is stored across K is read in lines that already have the panel's order.
// 3. No byte outside of a matrix is read: ends go by masked loads, which raise no fault for lanes
//    that are masked out.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

#include "ops/cpu/packed_operands.hpp"

/// Compilers use AVX-512 BF16 for its intrinsics only, which run where they were asked for.
#define TRIREME_AVX512 \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma,prfchw")))
#define TRIREME_AVX512_INLINE inline __attribute__((always_inline)) TRIREME_AVX512

namespace trireme::ops::cpu::avx512 {

using cpu::element_bytes;
using cpu::elements_per_unit;
using cpu::Stored;
using cpu::Target;
using cpu::Terms;
using cpu::Unit;
using cpu::Units;

inline constexpr std::int64_t panel_columns = 32, panel_rows = 12, lanes = 16;

/// The lowest `count` of 16 bits; all for 16 and more, none below 1.
TRIREME_AVX512_INLINE __mmask16 first_lanes(std::int64_t count) {
  return static_cast<__mmask16>(count >= lanes ? 0xffffU : count <= 0 ? 0U : (1U << count) - 1U);
}
/// The same of 32 bits, for lanes of 16-bit numbers.
TRIREME_AVX512_INLINE __mmask32 first_lanes_32(std::int64_t count) {
  return count >= 2 * lanes ? 0xffffffffU : count <= 0 ? 0U : (1U << count) - 1U;
}

/// Sixteen bf16 as fp32.
TRIREME_AVX512_INLINE __m512i widened(__m256i narrow) {
  return _mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16);
}

/// Sixteen units of row `row`, which runs along K, from `unit` on.
template <Units kind>
TRIREME_AVX512_INLINE __m512i load_along(const Stored& m, std::int64_t row, std::int64_t unit) {
  if (row >= m.rows)
    return _mm512_setzero_si512();
  const std::byte* at =
      m.data + element_bytes(kind) * (row * m.columns + elements_per_unit(kind) * unit);
  if constexpr (kind == Units::pairs)
    return _mm512_maskz_loadu_epi16(first_lanes_32(m.columns - 2 * unit), at);
  else if constexpr (kind == Units::widened)
    return widened(_mm256_maskz_loadu_epi16(first_lanes(m.columns - unit), at));
  else
    return _mm512_maskz_loadu_epi32(first_lanes(m.columns - unit), at);
}
/// The same where the matrix has all of them.
template <Units kind>
TRIREME_AVX512_INLINE __m512i load_whole(const std::byte* at) {
  if constexpr (kind == Units::widened)
    return widened(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  else
    return _mm512_loadu_si512(at);
}

/// One unit of each of the columns [column, column + 16) that `keep` names; K runs down the rows.
template <Units kind>
TRIREME_AVX512_INLINE __m512i
load_across(const Stored& m, std::int64_t unit, std::int64_t column, __mmask16 keep) {
  if constexpr (kind == Units::pairs) {
    const std::byte* at = m.data + 2 * (2 * unit * m.columns + column);
    const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(keep, at));
    if (2 * unit + 1 >= m.rows)
      return low;
    const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(keep, at + 2 * m.columns));
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
  } else {
    const std::byte* at = m.data + element_bytes(kind) * (unit * m.columns + column);
    if constexpr (kind == Units::widened)
      return widened(_mm256_maskz_loadu_epi16(keep, at));
    else
      return _mm512_maskz_loadu_epi32(keep, at);
  }
}

/// Lines become columns: 16 lines of 16 lanes, in four rounds of ever longer pieces.
TRIREME_AVX512_INLINE void transpose(__m512i (&line)[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(line[i], line[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(line[i], line[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    line[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    line[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    line[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    line[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // line[4 q + c]: column c of every group of four, from the lines 4 q to 4 q + 3.
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    t[c] = _mm512_shuffle_i32x4(line[c], line[4 + c], 0x88);
    t[4 + c] = _mm512_shuffle_i32x4(line[c], line[4 + c], 0xdd);
    t[8 + c] = _mm512_shuffle_i32x4(line[8 + c], line[12 + c], 0x88);
    t[12 + c] = _mm512_shuffle_i32x4(line[8 + c], line[12 + c], 0xdd);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    line[c] = _mm512_shuffle_i32x4(t[c], t[8 + c], 0x88);
    line[8 + c] = _mm512_shuffle_i32x4(t[c], t[8 + c], 0xdd);
    line[4 + c] = _mm512_shuffle_i32x4(t[4 + c], t[12 + c], 0x88);
    line[12 + c] = _mm512_shuffle_i32x4(t[4 + c], t[12 + c], 0xdd);
  }
}

/// The panel of the columns from `column` on, units [begin, end), of a B stored [N, K].
template <Units kind>
TRIREME_AVX512 inline void pack_b_transposed(
    Unit* to, const Stored& b, std::int64_t column, std::int64_t begin, std::int64_t end) {
  const std::int64_t row_bytes = b.columns * element_bytes(kind);
  constexpr std::int64_t unit_bytes = element_bytes(kind) * elements_per_unit(kind);
  const bool whole_rows = column + panel_columns <= b.rows;
  for (std::int64_t unit = begin; unit < end; unit += lanes) {
    const std::int64_t count = std::min(lanes, end - unit);
    for (std::int64_t half = 0; half < panel_columns; half += lanes) {
      __m512i line[16];
      const std::byte* first = b.data + row_bytes * (column + half) + unit_bytes * unit;
      if (whole_rows && (unit + lanes) * elements_per_unit(kind) <= b.columns) {
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) line[i] = load_whole<kind>(first + i * row_bytes);
      } else {
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) line[i] = load_along<kind>(b, column + half + i, unit);
      }
      transpose(line);
      Unit* at = to + (unit - begin) * panel_columns + half;
      if (count == lanes) {
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) _mm512_storeu_si512(at + i * panel_columns, line[i]);
      } else {
        for (std::int64_t i = 0; i < count; ++i)
          _mm512_storeu_si512(at + i * panel_columns, line[i]);
      }
    }
  }
}

/// The same of a B stored [K, N]: lines of 32 columns, two rows of K each where a unit is a pair.
template <Units kind>
TRIREME_AVX512 inline void pack_b(
    Unit* to, const Stored& b, std::int64_t column, std::int64_t begin, std::int64_t end) {
  const __mmask16 left = first_lanes(b.columns - column);
  const __mmask16 right = first_lanes(b.columns - column - lanes);
  for (std::int64_t unit = begin; unit < end; ++unit, to += panel_columns) {
    _mm512_storeu_si512(to, load_across<kind>(b, unit, column, left));
    _mm512_storeu_si512(to + lanes, load_across<kind>(b, unit, column + lanes, right));
  }
}

/// A unit of 24 rows: in each register those of 12, one panel's, and of four more.
struct TwoLines {
  __m512i first, second;
};

/// Which 16-bit numbers of two registers make pairs: r of both, for sixteen r from `first` on.
TRIREME_AVX512_INLINE __m512i paired(std::int64_t first) {
  const __m512i r =
      _mm512_add_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                       _mm512_set1_epi32(static_cast<int>(first)));
  const __m512i of_second = _mm512_add_epi32(r, _mm512_set1_epi32(2 * lanes));
  return _mm512_or_si512(r, _mm512_slli_epi32(of_second, 16));
}

/// The unit `unit` of the rows [row, row + 24) that `keep` names, of an A stored [K, M].
template <Units kind>
TRIREME_AVX512_INLINE TwoLines
load_two_panels(const Stored& a, std::int64_t unit, std::int64_t row, __mmask32 keep) {
  if constexpr (kind == Units::pairs) {
    const std::byte* at = a.data + 2 * (2 * unit * a.columns + row);
    const __m512i low = _mm512_maskz_loadu_epi16(keep, at);
    const __m512i high = 2 * unit + 1 < a.rows ? _mm512_maskz_loadu_epi16(keep, at + 2 * a.columns)
                                               : _mm512_setzero_si512();
    return {_mm512_permutex2var_epi16(low, paired(0), high),
            _mm512_permutex2var_epi16(low, paired(panel_rows), high)};
  } else {
    const auto first = static_cast<__mmask16>(keep),
               second = static_cast<__mmask16>(keep >> panel_rows);
    return {load_across<kind>(a, unit, row, first),
            load_across<kind>(a, unit, row + panel_rows, second)};
  }
}

/// Panels of C's rows [row, row + rows), one or two, units [begin, end), of an A stored [K, M],
/// `stride` units apart. Writes four units beyond a panel.
template <Units kind>
TRIREME_AVX512 inline void pack_a_transposed(Unit* to,
                                             std::int64_t stride,
                                             const Stored& a,
                                             std::int64_t row,
                                             std::int64_t rows,
                                             std::int64_t begin,
                                             std::int64_t end) {
  const __mmask32 keep = first_lanes_32(rows);
  for (std::int64_t unit = begin; unit < end; ++unit, to += panel_rows) {
    const TwoLines line = load_two_panels<kind>(a, unit, row, keep);
    _mm512_storeu_si512(to, line.first);
    _mm512_storeu_si512(to + stride, line.second);
  }
}

/// Rows [row, row + rows) of an A that is in rows, units [begin, end), `stride` units apart. What a
/// last group of 16 units has beyond is zero.
template <Units kind>
TRIREME_AVX512 inline void copy_rows(Unit* to,
                                     std::int64_t stride,
                                     const Stored& a,
                                     std::int64_t row,
                                     std::int64_t rows,
                                     std::int64_t begin,
                                     std::int64_t end) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t unit = begin; unit < end; unit += lanes)
      _mm512_storeu_si512(to + r * stride + unit - begin, load_along<kind>(a, row + r, unit));
}

/// Sixteen rows of a transposed A from `row` on, units [begin, end), as rows `stride` units apart,
/// from which AMX loads tiles. What a last group of 16 units has beyond is zero.
TRIREME_AVX512 inline void pack_rows(Unit* to,
                                     std::int64_t stride,
                                     const Stored& a,
                                     std::int64_t row,
                                     std::int64_t begin,
                                     std::int64_t end) {
  const __mmask16 keep = first_lanes(a.columns - row);
  for (std::int64_t unit = begin; unit < end; unit += lanes) {
    __m512i line[16];
    const std::int64_t count = std::min(lanes, end - unit);
#pragma GCC unroll 16
    for (std::int64_t i = 0; i < lanes; ++i)
      line[i] =
          i < count ? load_across<Units::pairs>(a, unit + i, row, keep) : _mm512_setzero_si512();
    transpose(line);
#pragma GCC unroll 16
    for (std::int64_t r = 0; r < lanes; ++r)
      _mm512_storeu_si512(to + r * stride + unit - begin, line[r]);
  }
}

}  // namespace trireme::ops::cpu::avx512
