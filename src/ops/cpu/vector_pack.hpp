// SPDX-License-Identifier: Apache-2.0
// How the matmul for processors without AVX-512 brings operands into the order in which its
// register blocks read them: the layouts of packed_matmul.hpp, in vectors of whatever width the
// processor has. Written with the compilers' vectors; what a body is compiled for is decided by the
// function that it is inlined into (vector_matmul.cpp).
//
// 1. Packing changes no number: it copies fp32, or widens bf16, which is exact.
// 2. No byte outside of a matrix is read: at its ends elements are taken one by one.
// 3. What a panel of B has beyond the matrix is zero. A panel of A has no rows beyond it.
#pragma once

#include <cstring>

#include "ops/cpu/loops.hpp"
#include "ops/cpu/packed_matmul.hpp"

namespace trireme::ops::cpu {

/// Vectors of 8 and 4 lanes, of one register each.
struct EightLanes {
  using Vector = float __attribute__((vector_size(32), aligned(4), may_alias));
  static constexpr std::int64_t lanes = 8;
};
struct FourLanes {
  using Vector = float __attribute__((vector_size(16), aligned(4), may_alias));
  static constexpr std::int64_t lanes = 4;
};

/// Columns of a panel of B: all the vectors of a line fit into registers beside their sums.
inline constexpr std::int64_t vector_panel_columns = 16;

template <class Width>
TRIREME_INLINE typename Width::Vector load_vector(const void* from) {
  return *static_cast<const typename Width::Vector*>(from);
}
template <class Width>
TRIREME_INLINE void store_vector(void* to, typename Width::Vector v) {
  *static_cast<typename Width::Vector*>(to) = v;
}

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

/// A vector of elements that follow one another.
template <class Width, Units kind>
TRIREME_INLINE typename Width::Vector load_elements(const std::byte* from) {
  if constexpr (kind == Units::single) {
    return load_vector<Width>(from);
  } else {
    Unit wide[Width::lanes];
    copy_elements<kind>(wide, from, Width::lanes);
    return load_vector<Width>(wide);
  }
}

/// Lines become columns: of 2^n lines the first and the second half are interleaved, n times.
template <class Width>
TRIREME_INLINE void transpose(typename Width::Vector (&line)[Width::lanes]) {
  constexpr std::int64_t lanes = Width::lanes;
  typename Width::Vector t[lanes];
#pragma GCC unroll 3
  for (std::int64_t round = 1; round < lanes; round *= 2) {
#pragma GCC unroll 4
    for (std::int64_t i = 0; i < lanes / 2; ++i) {
      const auto low = line[i], high = line[i + lanes / 2];
      if constexpr (lanes == 8) {
        t[2 * i] = __builtin_shufflevector(low, high, 0, 8, 1, 9, 2, 10, 3, 11);
        t[2 * i + 1] = __builtin_shufflevector(low, high, 4, 12, 5, 13, 6, 14, 7, 15);
      } else {
        t[2 * i] = __builtin_shufflevector(low, high, 0, 4, 1, 5);
        t[2 * i + 1] = __builtin_shufflevector(low, high, 2, 6, 3, 7);
      }
    }
#pragma GCC unroll 8
    for (std::int64_t i = 0; i < lanes; ++i) line[i] = t[i];
  }
}

/// The panel of the columns from `column` on, units [begin, end), of a B stored [N, K].
template <class Width, Units kind>
TRIREME_INLINE void pack_b_transposed(
    Unit* to, const Stored& b, std::int64_t column, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t lanes = Width::lanes, element = element_bytes(kind);
  for (std::int64_t first = 0; first < vector_panel_columns; first += lanes) {
    const std::int64_t rows = std::min(lanes, b.rows - column - first);
    const std::byte* from = b.data + (column + first) * b.columns * element;
    Unit* at = to + first;
    std::int64_t unit = begin;
    if (rows == lanes)
      for (; unit + lanes <= end; unit += lanes, at += lanes * vector_panel_columns) {
        typename Width::Vector line[lanes];
#pragma GCC unroll 8
        for (std::int64_t i = 0; i < lanes; ++i)
          line[i] = load_elements<Width, kind>(from + (i * b.columns + unit) * element);
        transpose<Width>(line);
#pragma GCC unroll 8
        for (std::int64_t i = 0; i < lanes; ++i)
          store_vector<Width>(at + i * vector_panel_columns, line[i]);
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
TRIREME_INLINE void pack_b(
    Unit* to, const Stored& b, std::int64_t column, std::int64_t begin, std::int64_t end) {
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
template <class Width, Units kind, std::int64_t panel_rows>
TRIREME_INLINE void pack_a_transposed(Unit* to,
                                      std::int64_t stride,
                                      const Stored& a,
                                      std::int64_t row,
                                      std::int64_t rows,
                                      std::int64_t begin,
                                      std::int64_t end) {
  // Whole vectors, of which the next row of K overwrites what the panel has not.
  constexpr std::int64_t at_once = rounded_up(panel_rows, Width::lanes);
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

/// Rows [row, row + rows) of an A that lies in rows, units [begin, end), `stride` units apart.
template <Units kind>
TRIREME_INLINE void copy_rows(Unit* to,
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
