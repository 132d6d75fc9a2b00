// SPDX-License-Identifier: Apache-2.0
// The innermost loop of the AVX-512 matmul: up to 12 rows by 32 columns of C in 24 registers, along
// a whole block of K. Two registers hold a line of B's panel, one a broadcast element of A: with 12
// broadcasts and 2 loads for 24 fused multiply-adds, the multipliers are what limits.
//
// An element's sum runs over K in order and is the same whichever block the element lies in: not
// the rows, columns or threads around it, K alone decides its bits.
//
// 1. B is always a panel (avx512_pack.hpp): 32 columns lie side by side, so a line of it is two
//    loads. A is a panel where it is stored transposed, else it is read where it lies.
// 2. Where K is cut into blocks, the sums of a block are added to those before it (Target::addend)
//    in fp32, in the order of K; bias and rounding to bf16 come with the last one.
// 3. Memory that is wanted next is fetched beside the sums, by prefetches spread over the loop: the
//    rows of C, and the lines that Ahead names.
// 4. Nothing is written beyond `columns` of a row; what lies there in registers is zero.
#pragma once

#include <algorithm>

#include "ops/cpu/x86/avx512_math.hpp"

#define TRIREME_AVX512_BF16 \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma,prfchw")))
#define TRIREME_AVX512_BF16_INLINE inline __attribute__((always_inline)) TRIREME_AVX512_BF16

namespace trireme::ops::cpu::avx512 {

using cpu::Target;
using cpu::Terms;

/// Sixteen elements of the bias from `column` on, as fp32; zero where `keep` is not set.
TRIREME_AVX512_BF16_INLINE __m512 load_bias(const Target& t, std::int64_t column, __mmask16 keep) {
  if (t.bias_is_bf16)
    return _mm512_castsi512_ps(widened(_mm256_maskz_loadu_epi16(keep, t.bias + 2 * column)));
  return _mm512_maskz_loadu_ps(keep, t.bias + 4 * column);
}

/// c = sums (+ addend) (+ bias), added in this order.
template <int rows>
TRIREME_AVX512_BF16_INLINE void store_sums(__m512 (&sum)[rows][2], const Target& t) {
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const std::int64_t column = half * lanes;
    const __mmask16 keep = first_lanes(t.columns - column);
    const __m512 bias = t.bias != nullptr ? load_bias(t, column, keep) : _mm512_setzero_ps();
#pragma GCC unroll 12
    for (int r = 0; r < rows; ++r) {
      __m512 v = sum[r][half];
      if (t.addend != nullptr)
        v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(keep, t.addend + r * t.addend_stride + column));
      if (t.bias != nullptr)
        v = _mm512_add_ps(v, bias);
      const std::int64_t at = r * t.c_stride + column;
      if (t.c_is_bf16)
        _mm256_mask_storeu_epi16(t.c + 2 * at, keep, to_bf16(v));
      else
        _mm512_mask_storeu_ps(t.c + 4 * at, keep, v);
    }
  }
}

/// sum + a · b, with one unit of A for all sixteen columns. Of pairs both products are added, and
/// numbers below 2^-126 count as zero.
template <Units kind>
TRIREME_AVX512_BF16_INLINE __m512 multiply_add(__m512 sum, Unit a, __m512i b) {
  if constexpr (kind == Units::pairs)
    return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32(static_cast<int>(a)), (__m512bh)b);
  else
    return _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(a))),
                           _mm512_castsi512_ps(b), sum);
}

/// The block of `rows` rows and 32 columns over all of the terms' units. `packed`: A is a panel;
/// else it lies in rows. The number of rows is fixed at compilation, so that all sums stay in
/// registers.
template <Units kind, bool packed, int rows>
TRIREME_AVX512_BF16 void product_block(const Terms& terms, const Target& target) {
  const auto unit_at = [](const Terms& t, int r, std::int64_t u) __attribute__((always_inline)) {
    Unit value;
    if constexpr (packed)
      value = t.a[u * panel_rows + r];
    else
      std::memcpy(&value, reinterpret_cast<const std::byte*>(t.a + u) + r * t.row_stride,
                  sizeof value);
    return value;
  };
  // Meanwhile the lines of C come near: fetched by the stores, they would take as long as the sums.
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::byte* line = target.c + r * target.c_stride * (target.c_is_bf16 ? 2 : 4);
    __builtin_prefetch(line, 1);
    __builtin_prefetch(line + (target.c_is_bf16 ? 63 : 127), 1);
  }
  __m512 sum[rows][2];
#pragma GCC unroll 12
  for (int r = 0; r < rows; ++r) sum[r][0] = sum[r][1] = _mm512_setzero_ps();
  const Unit* b = terms.b;
  const std::byte* ahead = terms.ahead.first;
  for (std::int64_t line = 0; line < terms.units; line += lanes) {
    for (std::int64_t i = 0; i < terms.ahead.lines; ++i)
      __builtin_prefetch(ahead + i * terms.ahead.stride, 0, 2);
    ahead += terms.ahead.step;
    const std::int64_t end = std::min(line + lanes, terms.units);
    for (std::int64_t u = line; u < end; ++u, b += panel_columns) {
      const __m512i left = _mm512_loadu_si512(b), right = _mm512_loadu_si512(b + lanes);
#pragma GCC unroll 12
      for (int r = 0; r < rows; ++r) {
        const Unit a = unit_at(terms, r, u);
        sum[r][0] = multiply_add<kind>(sum[r][0], a, left);
        sum[r][1] = multiply_add<kind>(sum[r][1], a, right);
      }
    }
  }
  if (kind == Units::pairs && terms.half_unit) {
    const __m512i left = _mm512_loadu_si512(b), right = _mm512_loadu_si512(b + lanes);
#pragma GCC unroll 12
    for (int r = 0; r < rows; ++r) {
      std::uint16_t alone;
      std::memcpy(&alone,
                  reinterpret_cast<const std::byte*>(terms.a + terms.units) + r * terms.row_stride,
                  sizeof alone);
      sum[r][0] = multiply_add<kind>(sum[r][0], alone, left);
      sum[r][1] = multiply_add<kind>(sum[r][1], alone, right);
    }
  }
  store_sums<rows>(sum, target);
}

/// Any number of rows up to 12, in one to three blocks. Small blocks leave multipliers idle: only
/// the last rows of a matrix need them.
template <Units kind, bool packed>
TRIREME_AVX512_BF16 inline void product_rows(const Terms& from,
                                             const Target& to,
                                             std::int64_t rows) {
  if (rows == panel_rows) {
    product_block<kind, packed, 12>(from, to);
    return;
  }
  Terms terms = from;
  Target target = to;
  if (rows >= 8) {
    product_block<kind, packed, 8>(terms, target);
    skip_rows<packed>(terms, target, 8);
    rows -= 8;
  }
  if (rows >= 4) {
    product_block<kind, packed, 4>(terms, target);
    skip_rows<packed>(terms, target, 4);
    rows -= 4;
  }
  if (rows >= 2) {
    product_block<kind, packed, 2>(terms, target);
    skip_rows<packed>(terms, target, 2);
    rows -= 2;
  }
  if (rows >= 1)
    product_block<kind, packed, 1>(terms, target);
}

}  // namespace trireme::ops::cpu::avx512
