// SPDX-License-Identifier: Apache-2.0
// The innermost loop of the AVX-512 matmul: up to 12 rows by 32 columns of C in 24 registers, along
// a whole block of K. Two registers hold a line of B's panel, one a broadcast element of A: with 12
// broadcasts and 2 loads for 24 fused multiply-adds, the multipliers are what limits.
//
// An element's sum runs over K in order and is the same whichever block the element is in: not
// the rows, columns or threads around it, K alone decides its bits.
//
// 1. B is always a panel (avx512_pack.hpp): 32 columns are side by side, so a line of it is two
//    loads. A is a panel where it is stored transposed, else it is read where it is.
// 2. Where K is cut into blocks, the sums of a block are added to those before it (Target::addend)
//    in fp32, in the order of K; bias and rounding to bf16 come with the last one.
// 3. Memory that is needed next is fetched during the sums, by prefetches spread over the loop: the
//    rows of C, the sums that are added to and are elsewhere, and the lines that Ahead names.
// 4. Nothing is written beyond `columns` of a row; what is there in registers is zero.
#pragma once

#include <algorithm>

#include "base/round_up.hpp"

#include "ops/cpu/x86/avx512_math.hpp"

#define TRIREME_AVX512_BF16 \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma,prfchw")))
#define TRIREME_AVX512_BF16_INLINE inline __attribute__((always_inline)) TRIREME_AVX512_BF16

namespace trireme::ops::cpu::avx512 {

using cpu::Target;
using cpu::Terms;

/// The first and the second 16 columns of a block.
inline constexpr int halves = 2;

/// Sixteen elements of the bias from `column` on, as fp32; zero where `keep` is not set.
TRIREME_AVX512_BF16_INLINE __m512 load_bias(const Target& t, std::int64_t column, __mmask16 keep) {
  if (t.bias_is_bf16)
    return load_floats(reinterpret_cast<const Bf16*>(t.bias) + column, keep);
  return load_floats(reinterpret_cast<const float*>(t.bias) + column, keep);
}

/// A block's sums as they are, to where they go: the columns that the masks name.
template <class T, int rows>
TRIREME_AVX512_BF16_INLINE void store_block(const __m512 (&sum)[rows][halves],
                                            const Target& t,
                                            __mmask16 left,
                                            __mmask16 right) {
  T* c = reinterpret_cast<T*>(t.c);
#pragma GCC unroll 12
  for (int r = 0; r < rows; ++r, c += t.c_stride) {
    store_floats(c, sum[r][0], left);
    store_floats(c + lanes, sum[r][1], right);
  }
}

/// c = sums (+ addend) (+ bias), added in this order. What is to be done is asked once per block:
/// asking for every row takes 3 % of the time of attention with heads of 64 channels.
template <int rows>
TRIREME_AVX512_BF16_INLINE void store_sums(__m512 (&sum)[rows][halves], const Target& t) {
  const __mmask16 keep[halves] = {first_lanes(t.columns), first_lanes(t.columns - lanes)};
  if (t.addend != nullptr) {
    const float* addend = t.addend;
#pragma GCC unroll 12
    for (int r = 0; r < rows; ++r, addend += t.addend_stride)
#pragma GCC unroll 2
      for (int half = 0; half < halves; ++half)
        sum[r][half] = _mm512_add_ps(sum[r][half], load_floats(addend + half * lanes, keep[half]));
  }
  if (t.bias != nullptr) {
    const __m512 bias[halves] = {load_bias(t, 0, keep[0]), load_bias(t, lanes, keep[1])};
#pragma GCC unroll 12
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
      for (int half = 0; half < halves; ++half)
        sum[r][half] = _mm512_add_ps(sum[r][half], bias[half]);
  }
  constexpr __mmask16 all = 0xffffU;  // known to the compiler: without masks
  const bool whole = t.columns == panel_columns;
  if (t.c_is_bf16 && whole)
    store_block<Bf16>(sum, t, all, all);
  else if (t.c_is_bf16)
    store_block<Bf16>(sum, t, keep[0], keep[1]);
  else if (whole)
    store_block<float>(sum, t, all, all);
  else
    store_block<float>(sum, t, keep[0], keep[1]);
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
/// else it is in rows. The number of rows is fixed at compilation, so that all sums stay in
/// registers. Inlined into callers that know what is stored and how far apart rows are: with the 32
/// units of a head of 64 channels, that takes 0.95 of the time of a call.
template <Units kind, bool packed, int rows>
TRIREME_AVX512_BF16_INLINE void inlined_block(const Terms& terms, const Target& target) {
  // Every third row that is in rows has a pointer, so that all addresses of a unit fit into
  // registers: one of them kept in a vector register costs 3 % of the products.
  constexpr std::int64_t unit_bytes = sizeof(Unit);
  constexpr std::int64_t apart = 3, pointers = packed ? 1 : divided_up(rows, apart);
  const std::byte* a[pointers];
#pragma GCC unroll 4
  for (std::int64_t i = 0; i < pointers; ++i)
    a[i] = reinterpret_cast<const std::byte*>(terms.a) + i * apart * terms.row_stride;
  const auto unit_of = [&](int r) __attribute__((always_inline)) {
    Unit value;
    if constexpr (packed)
      std::memcpy(&value, a[0] + r * unit_bytes, sizeof value);
    else
      std::memcpy(&value, a[r / apart] + r % apart * terms.row_stride, sizeof value);
    return value;
  };
  // Meanwhile the lines of C come near: fetched by the stores, they would take as long as the sums.
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::byte* line = target.c + r * target.c_stride * (target.c_is_bf16 ? 2 : 4);
    __builtin_prefetch(line, 1);
    __builtin_prefetch(line + (target.c_is_bf16 ? 63 : 127), 1);
  }
  if (target.c_is_bf16 && target.addend != nullptr)
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* line = target.addend + r * target.addend_stride;
      __builtin_prefetch(line);
      __builtin_prefetch(line + panel_columns - 1);
    }
  __m512 sum[rows][halves];
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
        const Unit unit = unit_of(r);
        sum[r][0] = multiply_add<kind>(sum[r][0], unit, left);
        sum[r][1] = multiply_add<kind>(sum[r][1], unit, right);
      }
#pragma GCC unroll 4
      for (std::int64_t i = 0; i < pointers; ++i) a[i] += unit_bytes * (packed ? panel_rows : 1);
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
  store_sums(sum, target);
}

/// The same as a call.
template <Units kind, bool packed, int rows>
TRIREME_AVX512_BF16 void product_block(const Terms& terms, const Target& target) {
  inlined_block<kind, packed, rows>(terms, target);
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
