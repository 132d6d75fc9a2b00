// SPDX-License-Identifier: Apache-2.0
// Sixteen numbers at a time for AVX-512 kernels: in and out of memory as fp32 whatever the dtype,
// and exponentials.
//
// Whole registers of bf16 go without a mask: Zen 4 takes several times as long for a masked store
// of 16-bit numbers.
//
// 1. Lanes that `keep` leaves out are zero after a load, and are not written by a store; no byte of
//    theirs is touched.
// 2. Arithmetic is fp32. bf16 is rounded once, at the store, to nearest even.
// 3. exponential() and power_of_two() are functions of the bits of their argument: no table, no
//    rounding mode but the default.
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
TRIREME_AVX512_INLINE void store_floats(float* to, __m512 v, __mmask16 keep) {
  _mm512_mask_storeu_ps(to, keep, v);
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

/// As fast_exp (ops/cpu/loops.hpp): within 2 units in the last place, 0 below -87.3.
TRIREME_AVX512_INLINE __m512 exponential(__m512 x) {
  const __mmask16 counts = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.3F), _CMP_NLT_UQ);
  const __m512 at = _mm512_min_ps(_mm512_set1_ps(88.3F), x);  // NaN stays
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(at, _mm512_set1_ps(1.44269504F)),
                                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375F), at);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4F), r);
  __m512 p = _mm512_set1_ps(1.0F / 5040.0F);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F / 720.0F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F / 120.0F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F / 24.0F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F / 6.0F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F));
  return _mm512_maskz_scalef_ps(counts, p, n);
}

/// 2^x for |x| <= 1/2, within 2e-7, and 1 for 0. The polynomial is the minimax one of degree 5
/// among those that are 1 at 0.
TRIREME_AVX512_INLINE __m512 power_of_two_near_zero(__m512 x) {
  __m512 p = _mm512_set1_ps(1.32647272e-3F);
  p = _mm512_fmadd_ps(p, x, _mm512_set1_ps(9.67151281e-3F));
  p = _mm512_fmadd_ps(p, x, _mm512_set1_ps(5.55073374e-2F));
  p = _mm512_fmadd_ps(p, x, _mm512_set1_ps(2.40222421e-1F));
  p = _mm512_fmadd_ps(p, x, _mm512_set1_ps(6.93146978e-1F));
  return _mm512_fmadd_ps(p, x, _mm512_set1_ps(1.0F));
}

/// 2^x within 2e-7; NaN stays NaN. Requires: x is finite or NaN.
TRIREME_AVX512_INLINE __m512 power_of_two(__m512 x) {
  const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  return _mm512_scalef_ps(power_of_two_near_zero(_mm512_sub_ps(x, n)), n);
}

/// 1 / x within 1 unit in the last place or two; 0 for infinity.
TRIREME_AVX512_INLINE __m512 reciprocal(__m512 x) {
  const __m512 guess = _mm512_rcp14_ps(x);
  const __m512 error = _mm512_fnmadd_ps(x, guess, _mm512_set1_ps(1.0F));
  return _mm512_fmadd_ps(guess, error, guess);  // one step of Newton's
}

}  // namespace trireme::ops::cpu::avx512
