// SPDX-License-Identifier: Apache-2.0
// Packs operands of the matmul in the order in which its register blocks read them: the layouts of
// packed_operands.hpp. Included once per level (for_each_level.hpp), before product_kernels.hpp.
// 1. Packing changes no number: it copies bits, or widens bf16, which is exact. Each element of B
//    is packed once per call and then read for every group of rows of C.
// 2. A B that is stored along K is brought into panels by transpositions in registers, of 16 x 16
//    units with AVX-512, else of 4 x 4, for which every target has vectors. What is stored across K
//    is read in lines that already have the panel's order.
// 3. No byte outside of a matrix is read: remainders use masked loads.
// 4. The part of a panel of B beyond the matrix is zero. That of a panel of A is not read.

namespace trireme::ops::cpu::TRIREME_LEVEL {

inline constexpr int panel_vectors = TRIREME_LANES == 16 ? 2 : 1;
inline constexpr std::int64_t panel_columns = panel_vectors * lanes;
#if TRIREME_LANES == 4 && defined(__x86_64__)
inline constexpr std::int64_t panel_rows = 2;
#else
inline constexpr std::int64_t panel_rows = TRIREME_LANES == 16 ? 12 : 6;
#endif

template <Units kind>
using Element = std::conditional_t<kind == Units::single, float, Bf16>;

/// The masks of the columns of a panel that exist.
struct PanelMasks {
  Mask of[panel_vectors];
  TRIREME_PART explicit PanelMasks(std::int64_t columns) {
#pragma GCC unroll 2
    for (int v = 0; v < panel_vectors; ++v) of[v] = first_lanes(columns - v * lanes);
  }
};

TRIREME_PART inline void store_units(Unit* to, const Floats& units) {
  store_floats(reinterpret_cast<float*>(to), units);
}

/// `count` elements as units, sixteen at most, and zero beyond them.
template <Units kind>
TRIREME_PART inline Floats load_units(const std::byte* at, std::int64_t count) {
#if TRIREME_LANES == 16
  if constexpr (kind == Units::pairs)
    return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(first_lanes_32(count), at));
  else
#endif
    return load_floats(reinterpret_cast<const Element<kind>*>(at), first_lanes(count));
}

/// One unit of each row or column of [place, place + 16) selected by `keep`; K runs down the rows
/// of the matrix.
template <Units kind>
TRIREME_PART inline Floats load_across(const Stored& m,
                                       std::int64_t unit,
                                       std::int64_t place,
                                       Mask keep) {
#if TRIREME_LANES == 16
  if constexpr (kind == Units::pairs)
    return _mm512_castsi512_ps(load_pairs_across(m, unit, place, keep));
  else
#endif
    return load_floats(reinterpret_cast<const Element<kind>*>(m.data) + unit * m.columns + place,
                       keep);
}

#if TRIREME_LANES == 16
using Turned = __m512i;
template <Units kind>
TRIREME_PART inline Turned load_turned(const std::byte* at, std::int64_t count) {
  return _mm512_castps_si512(load_units<kind>(at, count));
}
#else
using Turned = float __attribute__((vector_size(16)));
template <Units kind>
TRIREME_PART inline Turned load_turned(const std::byte* at, std::int64_t count) {
  float line[4] = {};
  for (std::int64_t i = 0; i < std::min<std::int64_t>(count, 4); ++i)
    line[i] = to_float(reinterpret_cast<const Element<kind>*>(at)[i]);
  Turned all;
  std::memcpy(&all, line, sizeof all);
  return all;
}
/// Transposes: the first and the second half of the lines are interleaved, twice.
TRIREME_PART inline void transpose(Turned (&line)[4]) {
#pragma GCC unroll 2
  for (int round = 0; round < 2; ++round) {
    const auto a = line[0], b = line[1], c = line[2], d = line[3];
    line[0] = __builtin_shufflevector(a, c, 0, 4, 1, 5);
    line[1] = __builtin_shufflevector(a, c, 2, 6, 3, 7);
    line[2] = __builtin_shufflevector(b, d, 0, 4, 1, 5);
    line[3] = __builtin_shufflevector(b, d, 2, 6, 3, 7);
  }
}
#endif

/// Rows along K, `row_bytes` apart, as lines of `width` units, one of each row. Units are zero beyond
/// the last of `rows` and of the `elements` of a row. Writes as many lines as whole squares have.
template <Units kind, std::int64_t width>
TRIREME_KERNEL void turn_rows(Unit* to,
                              const std::byte* from,
                              std::int64_t row_bytes,
                              std::int64_t rows,
                              std::int64_t elements,
                              std::int64_t units) {
  constexpr std::int64_t square = sizeof(Turned) / sizeof(Unit), each = elements_per_unit(kind);
  for (std::int64_t row = 0; row < width; row += square, from += square * row_bytes) {
    Unit* out = to + row;
    for (std::int64_t unit = 0; unit < units; unit += square) {
      const std::byte* at = from + unit * each * element_bytes(kind);
      const std::int64_t left = elements - unit * each;
      Turned line[square];
      if (row + square <= rows && square * each <= left) {
#pragma GCC unroll 16
        for (std::int64_t i = 0; i < square; ++i)
          line[i] = load_turned<kind>(at + i * row_bytes, square * each);
      } else {
#pragma GCC unroll 16
        for (std::int64_t i = 0; i < square; ++i)
          line[i] = load_turned<kind>(at + i * row_bytes, row + i < rows ? left : 0);
      }
      transpose(line);
#pragma GCC unroll 16
      for (std::int64_t i = 0; i < square; ++i, out += width)
        std::memcpy(out, &line[i], sizeof line[i]);
    }
  }
}

/// The panel of the columns from `column` on, units [begin, end), of a B stored [N, K].
template <Units kind>
TRIREME_KERNEL void pack_b_transposed(
    Unit* to, const Stored& b, std::int64_t column, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t each = elements_per_unit(kind), bytes = element_bytes(kind);
  turn_rows<kind, panel_columns>(to, b.data + (column * b.columns + begin * each) * bytes,
                                 b.columns * bytes, b.rows - column, b.columns - begin * each,
                                 end - begin);
}

/// The same of a B stored [K, N]: lines of columns, two rows of K each where a unit is a pair.
template <Units kind>
TRIREME_KERNEL void pack_b(
    Unit* to, const Stored& b, std::int64_t column, std::int64_t begin, std::int64_t end) {
  const PanelMasks keep(b.columns - column);
  for (std::int64_t unit = begin; unit < end; ++unit, to += panel_columns)
#pragma GCC unroll 2
    for (int v = 0; v < panel_vectors; ++v)
      store_units(to + v * lanes, load_across<kind>(b, unit, column + v * lanes, keep.of[v]));
}

/// Panels of C's rows [row, row + rows), units [begin, end), of an A stored [K, M], `stride` units
/// apart. Writes up to sixteen units beyond a panel.
template <Units kind>
TRIREME_KERNEL void pack_a_transposed(Unit* to,
                                      std::int64_t stride,
                                      const Stored& a,
                                      std::int64_t row,
                                      std::int64_t rows,
                                      std::int64_t begin,
                                      std::int64_t end) {
  for (std::int64_t unit = begin; unit < end; ++unit, to += panel_rows) {
    Unit* at = to;
    for (std::int64_t r = row; r < row + rows; r += panel_rows, at += stride)
      store_units(at, load_across<kind>(a, unit, r, first_lanes(a.columns - r)));
  }
}

/// Rows [row, row + rows) of an A stored in rows, units [begin, end), `stride` units apart. A last
/// group of 16 units is zero beyond the matrix.
template <Units kind>
TRIREME_KERNEL void copy_rows(Unit* to,
                              std::int64_t stride,
                              const Stored& a,
                              std::int64_t row,
                              std::int64_t rows,
                              std::int64_t begin,
                              std::int64_t end) {
  constexpr std::int64_t each = elements_per_unit(kind);
  for (std::int64_t r = row; r < row + rows; ++r, to += stride)
    for (std::int64_t unit = begin; unit < end; unit += lanes)
      store_units(to + unit - begin,
                  load_units<kind>(a.data + (r * a.columns + unit * each) * element_bytes(kind),
                                   r < a.rows ? a.columns - unit * each : 0));
}

}  // namespace trireme::ops::cpu::TRIREME_LEVEL
