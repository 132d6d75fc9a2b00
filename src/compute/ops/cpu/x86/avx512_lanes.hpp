// SPDX-License-Identifier: Apache-2.0
// Sixteen fp32 at a time by AVX-512: the names of lanes.hpp, and additional functions for the
// AVX-512 kernels: pairs of bf16, each of which is a unit (packed_operands.hpp), and transpositions
// of 16 x 16 units in registers. The rules for masks and rounding are those of lanes.hpp.
//
// Whole registers of bf16 are accessed without a mask: on Zen 4 a masked store of 16-bit numbers
// takes several times as long.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "base/dtype.hpp"

#include "ops/cpu/packed_operands.hpp"

/// Compilers emit AVX-512 BF16 only for its intrinsics, which run only in code that selects them.
#define TRIREME_AVX512 \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma,prfchw")))
#define TRIREME_AVX512_INLINE inline __attribute__((always_inline)) TRIREME_AVX512

namespace trireme::ops::cpu::avx512 {

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

/// Transposes 16 lines of 16 lanes, in four rounds that exchange ever longer parts.
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

TRIREME_AVX512_INLINE __m512 load_floats(const float* from, __mmask16 keep) {
  return _mm512_maskz_loadu_ps(keep, from);
}
TRIREME_AVX512_INLINE __m512 load_floats(const Bf16* from, __mmask16 keep) {
  const __m256i narrow = keep == 0xffffU
                             ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))
                             : _mm256_maskz_loadu_epi16(keep, from);
  return _mm512_castsi512_ps(widened(narrow));
}
TRIREME_AVX512_INLINE __m512 load_floats(const float* from) {
  return _mm512_loadu_ps(from);
}
TRIREME_AVX512_INLINE void store_floats(float* to, __m512 v, __mmask16 keep) {
  _mm512_mask_storeu_ps(to, keep, v);
}
TRIREME_AVX512_INLINE void store_floats(float* to, __m512 v) {
  _mm512_storeu_ps(to, v);
}

/// AVX-512 BF16: it rounds to bf16 in hardware, and treats numbers below 2^-126 as 0.
inline const bool has_bf16_rounding = __builtin_cpu_supports("avx512bf16");

TRIREME_AVX512_INLINE __m256i to_bf16(__m512 v) {
  if (has_bf16_rounding) {
    // The intrinsic asks for callers that are compiled for AVX-512 BF16 alone.
    __m256i result;
    asm("vcvtneps2bf16 %1, %0" : "=v"(result) : "v"(v));
    return result;
  }
  const __m512i raw = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(raw, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(raw, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m512i quiet = _mm512_or_si512(raw, _mm512_set1_epi32(0x400000));
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, nan, quiet), 16));
}
TRIREME_AVX512_INLINE void store_floats(Bf16* to, __m512 v, __mmask16 keep) {
  if (keep == 0xffffU)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), to_bf16(v));
  else
    _mm256_mask_storeu_epi16(to, keep, to_bf16(v));
}

/// 32 numbers, of which `low` come first: with AVX-512 BF16 one instruction rounds both registers.
TRIREME_AVX512_INLINE __m512i to_bf16(__m512 low, __m512 high) {
  if (has_bf16_rounding) {
    __m512i result;
    asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(result) : "v"(low), "v"(high));
    return result;
  }
  return _mm512_inserti64x4(_mm512_castsi256_si512(to_bf16(low)), to_bf16(high), 1);
}
TRIREME_AVX512_INLINE void store_pair(float* to, __m512 low, __m512 high) {
  _mm512_storeu_ps(to, low);
  _mm512_storeu_ps(to + lanes, high);
}
TRIREME_AVX512_INLINE void store_pair(Bf16* to, __m512 low, __m512 high) {
  _mm512_storeu_si512(to, to_bf16(low, high));
}

using Floats = __m512;
using Mask = __mmask16;

TRIREME_AVX512_INLINE __m512 zeros() {
  return _mm512_setzero_ps();
}
TRIREME_AVX512_INLINE __m512 every(float x) {
  return _mm512_set1_ps(x);
}
TRIREME_AVX512_INLINE __m512 fused(__m512 a, __m512 b, __m512 c) {
  return _mm512_fmadd_ps(a, b, c);
}
TRIREME_AVX512_INLINE __m512 fused_from(__m512 a, __m512 b, __m512 c) {
  return _mm512_fnmadd_ps(a, b, c);
}
TRIREME_AVX512_INLINE __m512 fused_minus(__m512 a, __m512 b, __m512 c) {
  return _mm512_fmsub_ps(a, b, c);
}
TRIREME_AVX512_INLINE __m512 larger(__m512 a, __m512 b) {
  return _mm512_max_ps(a, b);
}
TRIREME_AVX512_INLINE __m512 smaller(__m512 a, __m512 b) {
  return _mm512_min_ps(a, b);
}
TRIREME_AVX512_INLINE __m512 where_less(__m512 a, __m512 b, __m512 yes, __m512 no) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
}
TRIREME_AVX512_INLINE __m512 where(__mmask16 keep, __m512 yes, __m512 no) {
  return _mm512_mask_blend_ps(keep, no, yes);
}
TRIREME_AVX512_INLINE __m512 nearest_integer(__m512 x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/// Numbers below 2^-126 are rounded as others are.
TRIREME_AVX512_INLINE __m512 scaled(__m512 x, __m512 n) {
  return _mm512_scalef_ps(x, n);
}
/// Within 1 unit in the last place or two; 0 for infinity.
TRIREME_AVX512_INLINE __m512 reciprocal(__m512 x) {
  const __m512 guess = _mm512_rcp14_ps(x);
  const __m512 error = _mm512_fnmadd_ps(x, guess, _mm512_set1_ps(1.0F));
  return _mm512_fmadd_ps(guess, error, guess);  // one step of Newton's
}
TRIREME_AVX512_INLINE float sum_of_lanes(__m512 v) {
  return _mm512_reduce_add_ps(v);
}
TRIREME_AVX512_INLINE float largest_lane(__m512 v) {
  return _mm512_reduce_max_ps(v);
}
TRIREME_AVX512_INLINE float first_lane(__m512 v) {
  return _mm512_cvtss_f32(v);
}

}  // namespace trireme::ops::cpu::avx512
