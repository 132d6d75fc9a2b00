// SPDX-License-Identifier: Apache-2.0
// The innermost loop of the matmul for processors without AVX-512: `rows` rows by 16 columns of C
// in registers, along a whole block of K. Per unit it loads a line of B's panel and one broadcast
// element of each row of A. Written with the compilers' vectors; what a body is compiled for is
// decided by the function that it is inlined into (vector_matmul.cpp).
//
//              vectors of a line   rows   registers: sums, line, element
//   AVX2       2 of 8 lanes        6      12 + 2 + 1 of 16
//   NEON       4 of 4 lanes        6      24 + 4 + 1 of 32
//   SSE2       4 of 4 lanes        2       8 + 4 + 1 of 16
//
// 1. The sum of an element runs over K in order, whichever block the element is in: K alone
//    decides its bits. Multiplication and addition are fused where the processor can.
// 2. Nothing is written beyond `columns` of a row.
#pragma once

#include "ops/cpu/vector_pack.hpp"

namespace trireme::ops::cpu {

/// As fp32; zero beyond `columns`, and without a bias. Out of line, as the next: once per block,
/// and with them in each the blocks take minutes to compile under a sanitizer.
[[gnu::noinline]] inline void load_bias(float (&to)[vector_panel_columns], const Target& t) {
  for (float& one : to) one = 0;
  if (t.bias == nullptr)
    return;
  for (std::int64_t i = 0; i < t.columns; ++i)
    to[i] = t.bias_is_bf16 ? load_element<Units::widened>(t.bias + 2 * i)
                           : load_element<Units::single>(t.bias + 4 * i);
}

/// One row, in memory, to where it goes: any columns, any dtype.
[[gnu::noinline]] inline void store_row(const float (&sums)[vector_panel_columns],
                                        const float (&bias)[vector_panel_columns],
                                        const Target& t,
                                        std::int64_t row) {
  float v[vector_panel_columns];
  for (std::int64_t i = 0; i < vector_panel_columns; ++i) v[i] = sums[i];
  if (t.addend != nullptr)
    for (std::int64_t i = 0; i < t.columns; ++i) v[i] += t.addend[row * t.addend_stride + i];
  if (t.bias != nullptr)
    for (std::int64_t i = 0; i < vector_panel_columns; ++i) v[i] += bias[i];
  std::byte* to = t.c + row * t.c_stride * t.element_bytes();
  if (t.c_is_bf16) {
    Bf16 narrow[vector_panel_columns];
    for (std::int64_t i = 0; i < vector_panel_columns; ++i) narrow[i] = from_float<Bf16>(v[i]);
    if (t.columns == vector_panel_columns)
      std::memcpy(to, narrow, sizeof narrow);
    else
      std::memcpy(to, narrow, static_cast<std::size_t>(t.columns) * sizeof(Bf16));
  } else {
    std::memcpy(to, v, static_cast<std::size_t>(t.columns) * sizeof(float));
  }
}

/// c = sums (+ addend) (+ bias), added in this order.
template <class Width, int rows, int vectors>
TRIREME_INLINE void store_sums(const typename Width::Vector (&sum)[rows][vectors],
                               const Target& t) {
  constexpr std::int64_t lanes = Width::lanes;
  float bias[vector_panel_columns];
  load_bias(bias, t);
  if (t.c_is_bf16 || t.columns != vector_panel_columns) {
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      float line[vector_panel_columns];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) store_vector<Width>(line + v * lanes, sum[r][v]);
      store_row(line, bias, t, r);
    }
    return;
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      typename Width::Vector all = sum[r][v];
      if (t.addend != nullptr)
        all += load_vector<Width>(t.addend + r * t.addend_stride + v * lanes);
      if (t.bias != nullptr)
        all += load_vector<Width>(bias + v * lanes);
      store_vector<Width>(t.c + (r * t.c_stride + v * lanes) * 4, all);
    }
}

/// The block of `rows` rows and 16 columns over all of the terms' units. `packed`: A is a panel
/// of `panel_rows` rows; else it is in rows.
template <class Width, int panel_rows, bool packed, int rows>
TRIREME_INLINE void product_block(const Terms& terms, const Target& target) {
  constexpr int vectors = static_cast<int>(vector_panel_columns / Width::lanes);
  // Meanwhile the lines of C come near: fetched by the stores, they would take as long as the sums.
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::byte* line = target.c + r * target.c_stride * target.element_bytes();
    __builtin_prefetch(line, 1);
    __builtin_prefetch(line + vector_panel_columns * target.element_bytes() - 1, 1);
  }
  typename Width::Vector sum[rows][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) sum[r][v] = typename Width::Vector{};
  const auto* a = reinterpret_cast<const std::byte*>(terms.a);
  const Unit* b = terms.b;
  const std::byte* ahead = terms.ahead.first;
  constexpr std::int64_t unit_bytes = sizeof(Unit) * (packed ? panel_rows : 1);
  const std::int64_t row_bytes = packed ? std::int64_t{sizeof(Unit)} : terms.row_stride;
  for (std::int64_t line = 0; line < terms.units; line += line_units) {
    for (std::int64_t i = 0; i < terms.ahead.lines; ++i)
      __builtin_prefetch(ahead + i * terms.ahead.stride, 0, 2);
    ahead += terms.ahead.step;
    const std::int64_t end = std::min(line + line_units, terms.units);
    for (std::int64_t u = line; u < end; ++u, a += unit_bytes, b += vector_panel_columns) {
      typename Width::Vector of_b[vectors];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) of_b[v] = load_vector<Width>(b + v * Width::lanes);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
        const float one = load_element<Units::single>(a + r * row_bytes);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) sum[r][v] += one * of_b[v];
      }
    }
  }
  store_sums<Width, rows, vectors>(sum, target);
}

/// Any number of rows up to `panel_rows`. Small blocks leave multipliers idle: only the last rows
/// of a matrix need them.
template <class Width, int panel_rows, bool packed>
TRIREME_INLINE void product_rows(const Terms& from, const Target& to, std::int64_t rows) {
  if (rows == panel_rows) {
    product_block<Width, panel_rows, packed, panel_rows>(from, to);
    return;
  }
  Terms terms = from;
  Target target = to;
  if constexpr (panel_rows > 4)
    if (rows >= 4) {
      product_block<Width, panel_rows, packed, 4>(terms, target);
      skip_rows<packed>(terms, target, 4);
      rows -= 4;
    }
  if constexpr (panel_rows > 2)
    if (rows >= 2) {
      product_block<Width, panel_rows, packed, 2>(terms, target);
      skip_rows<packed>(terms, target, 2);
      rows -= 2;
    }
  if (rows >= 1)
    product_block<Width, panel_rows, packed, 1>(terms, target);
}

}  // namespace trireme::ops::cpu
