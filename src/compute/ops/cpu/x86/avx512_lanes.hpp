// SPDX-License-Identifier: Apache-2.0
// Sixteen fp32 at a time by AVX-512: the names of lanes.hpp, and what AVX-512's own kernels use in
// addition. The same rules hold for masks and for roundings.
//
// Whole registers of bf16 go without a mask: Zen 4 takes several times as long for a masked store
// of 16-bit numbers.
#pragma once

#include "base/dtype.hpp"

#include "ops/cpu/x86/avx512_pack.hpp"

namespace trireme::ops::cpu::avx512 {

/// Sixteen numbers as fp32.
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

/// Rounds to nearest even; NaN stays NaN.
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
