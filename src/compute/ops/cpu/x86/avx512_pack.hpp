// SPDX-License-Identifier: Apache-2.0
// What packing has for AVX-512 only: pairs of bf16, of which each is a unit, and transpositions of
// 16 x 16 units in registers. The functions that pack are in pack_kernels.hpp.
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

inline constexpr std::int64_t lanes = 16;

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

/// A pair of each of the columns [column, column + 16) that `keep` names, from two rows of K.
TRIREME_AVX512_INLINE __m512i load_pairs_across(const Stored& m,
                                                std::int64_t unit,
                                                std::int64_t column,
                                                __mmask16 keep) {
  const std::byte* at = m.data + 2 * (2 * unit * m.columns + column);
  const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(keep, at));
  if (2 * unit + 1 >= m.rows)
    return low;
  const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(keep, at + 2 * m.columns));
  return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
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
      line[i] = i < count ? load_pairs_across(a, unit + i, row, keep) : _mm512_setzero_si512();
    transpose(line);
#pragma GCC unroll 16
    for (std::int64_t r = 0; r < lanes; ++r)
      _mm512_storeu_si512(to + r * stride + unit - begin, line[r]);
  }
}

}  // namespace trireme::ops::cpu::avx512
