// SPDX-License-Identifier: Apache-2.0
// Packs operands for the matmul of processors without AVX-512 in the order in which its register
// blocks read them: the layouts of packed_operands.hpp. Written with the compilers' vector types.
// Packing uses vectors of four lanes, which every target has: wider ones would gain little in
// copying, and products with any vectors can share the code.
//
// 1. Packing changes no number: it copies fp32, or widens bf16, which is exact.
// 2. No byte outside of a matrix is read: at its ends elements are taken one by one.
// 3. What a panel of B has beyond the matrix is zero. A panel of A has no rows beyond it.
#pragma once

#include <cstring>

#include "ops/cpu/loops.hpp"
#include "ops/cpu/packed_operands.hpp"

namespace trireme::ops::cpu {

/// One register of the plain vectors.
using FourLanes = float __attribute__((vector_size(16)));
inline constexpr std::int64_t pack_lanes = 4;

/// Columns of a panel of B: all vectors of a line fit into registers together with their sums.
inline constexpr std::int64_t vector_panel_columns = 16;

/// An element of a matrix as fp32.
template <Units kind>
TRIREME_INLINE float load_element(const std::byte* from) {
  if constexpr (kind == Units::widened) {
    Bf16 narrow;
    std::memcpy(&narrow, from, sizeof narrow);
    return to_float(narrow);
  } else {
    float value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
}

/// `count` elements that follow one another.
template <Units kind>
TRIREME_INLINE void copy_elements(Unit* to, const std::byte* from, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = std::bit_cast<Unit>(load_element<kind>(from + i * element_bytes(kind)));
}

/// Lines become columns: the first and the second half of the lines are interleaved, twice.
TRIREME_INLINE void transpose(FourLanes (&line)[pack_lanes]) {
#pragma GCC unroll 2
  for (int round = 0; round < 2; ++round) {
    const auto a = line[0], b = line[1], c = line[2], d = line[3];
    line[0] = __builtin_shufflevector(a, c, 0, 4, 1, 5);
    line[1] = __builtin_shufflevector(a, c, 2, 6, 3, 7);
    line[2] = __builtin_shufflevector(b, d, 0, 4, 1, 5);
    line[3] = __builtin_shufflevector(b, d, 2, 6, 3, 7);
  }
}

/// The panel of the columns from `column` on, units [begin, end), of a B stored [N, K].
template <Units kind>
void pack_b_transposed(
    Unit* to, const Stored& b, std::int64_t column, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t lanes = pack_lanes, element = element_bytes(kind);
  for (std::int64_t first = 0; first < vector_panel_columns; first += lanes) {
    const std::int64_t rows = std::min(lanes, b.rows - column - first);
    const std::byte* from = b.data + (column + first) * b.columns * element;
    Unit* at = to + first;
    std::int64_t unit = begin;
    if (rows == lanes)
      for (; unit + lanes <= end; unit += lanes, at += lanes * vector_panel_columns) {
        FourLanes line[lanes];
#pragma GCC unroll 4
        for (std::int64_t i = 0; i < lanes; ++i) {
          Unit wide[lanes];
          copy_elements<kind>(wide, from + (i * b.columns + unit) * element, lanes);
          std::memcpy(&line[i], wide, sizeof wide);
        }
        transpose(line);
#pragma GCC unroll 4
        for (std::int64_t i = 0; i < lanes; ++i)
          std::memcpy(at + i * vector_panel_columns, &line[i], sizeof line[i]);
      }
    for (; unit < end; ++unit, at += vector_panel_columns)
      for (std::int64_t i = 0; i < lanes; ++i)
        at[i] =
            i < rows
                ? std::bit_cast<Unit>(load_element<kind>(from + (i * b.columns + unit) * element))
                : Unit{0};
  }
}

/// The same of a B stored [K, N].
template <Units kind>
void pack_b(Unit* to, const Stored& b, std::int64_t column, std::int64_t begin, std::int64_t end) {
  const std::int64_t columns = std::min(vector_panel_columns, b.columns - column);
  for (std::int64_t unit = begin; unit < end; ++unit, to += vector_panel_columns) {
    const std::byte* from = b.data + (unit * b.columns + column) * element_bytes(kind);
    if (columns == vector_panel_columns) {
      copy_elements<kind>(to, from, vector_panel_columns);
    } else {
      copy_elements<kind>(to, from, columns);
      std::fill(to + columns, to + vector_panel_columns, Unit{0});
    }
  }
}

/// Panels of C's rows [row, row + rows), units [begin, end), of an A stored [K, M], `stride` units
/// apart. Writes up to three units beyond a panel.
template <Units kind, std::int64_t panel_rows>
void pack_a_transposed(Unit* to,
                       std::int64_t stride,
                       const Stored& a,
                       std::int64_t row,
                       std::int64_t rows,
                       std::int64_t begin,
                       std::int64_t end) {
  // Whole vectors, of which the next row of K overwrites what the panel has not.
  constexpr std::int64_t at_once = rounded_up(panel_rows, pack_lanes);
  for (std::int64_t unit = begin; unit < end; ++unit) {
    const std::byte* from = a.data + (unit * a.columns + row) * element_bytes(kind);
    Unit* at = to + (unit - begin) * panel_rows;
    for (std::int64_t r = 0; r < rows; r += panel_rows, at += stride) {
      if (row + r + at_once <= a.columns)
        copy_elements<kind>(at, from + r * element_bytes(kind), at_once);
      else
        copy_elements<kind>(at, from + r * element_bytes(kind), std::min(panel_rows, rows - r));
    }
  }
}

/// Rows [row, row + rows) of an A that is in rows, units [begin, end), `stride` units apart.
template <Units kind>
void copy_rows(Unit* to,
               std::int64_t stride,
               const Stored& a,
               std::int64_t row,
               std::int64_t rows,
               std::int64_t begin,
               std::int64_t end) {
  for (std::int64_t r = 0; r < rows; ++r)
    copy_elements<kind>(to + r * stride,
                        a.data + ((row + r) * a.columns + begin) * element_bytes(kind),
                        end - begin);
}

}  // namespace trireme::ops::cpu
