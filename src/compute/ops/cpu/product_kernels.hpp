// SPDX-License-Identifier: Apache-2.0
// The innermost loop of the matmul: a few rows by the columns of a panel of C in registers, along a
// whole block of K. Per unit it loads a line of B's panel and one broadcast element of each row of
// A. Included once per level (for_each_level.hpp).
//
//                 panel of B   rows   registers: sums, line, element
//   AVX-512       32 columns   12     24 + 2 + 1 of 32; the multipliers are what limits
//   AVX2          16 columns    6     12 + 2 + 1 of 16
//   NEON          16 columns    6     24 + 4 + 1 of 32
//   SSE2          16 columns    2      8 + 4 + 1 of 16
// 1. B is always a panel, whose lines are side by side. A is a panel where it is stored transposed,
//    else it is read where it is.
// 2. Where K is cut into blocks, the sums of a block are added to those before it (Target::addend)
//    in fp32, in the order of K; bias and rounding to bf16 come with the last one.
// 3. Memory that is needed next is fetched during the sums, by prefetches spread over the loop: the
//    rows of C, the sums that are added to and are elsewhere, and the lines that Ahead names.
// 4. Nothing is written beyond `columns` of a row; what is there in registers is zero.

namespace trireme::ops::cpu::TRIREME_LEVEL {

/// Sixteen elements of the bias from `column` on, as fp32; zero where `keep` is not set.
TRIREME_PART inline Floats load_bias(const Target& t, std::int64_t column, Mask keep) {
  if (t.bias_is_bf16)
    return load_floats(reinterpret_cast<const Bf16*>(t.bias) + column, keep);
  return load_floats(reinterpret_cast<const float*>(t.bias) + column, keep);
}

/// Stores the sums of a block, unchanged, in the columns that the masks select.
template <class T, int rows>
TRIREME_PART inline void store_block(const Floats (&sum)[rows][panel_vectors],
                                     const Target& t,
                                     const PanelMasks& keep) {
  T* c = reinterpret_cast<T*>(t.c);
#pragma GCC unroll 12
  for (int r = 0; r < rows; ++r, c += t.c_stride)
#pragma GCC unroll 2
    for (int v = 0; v < panel_vectors; ++v) store_floats(c + v * lanes, sum[r][v], keep.of[v]);
}

/// c = sums (+ addend) (+ bias). Conditions are tested per block: per row they cost attention 3 %.
template <int rows>
TRIREME_PART inline void store_sums(Floats (&sum)[rows][panel_vectors], const Target& t) {
  const PanelMasks keep(t.columns);
  if (t.addend != nullptr) {
    const float* addend = t.addend;
#pragma GCC unroll 12
    for (int r = 0; r < rows; ++r, addend += t.addend_stride)
#pragma GCC unroll 2
      for (int v = 0; v < panel_vectors; ++v)
        sum[r][v] = sum[r][v] + load_floats(addend + v * lanes, keep.of[v]);
  }
  if (t.bias != nullptr) {
    Floats bias[panel_vectors];
#pragma GCC unroll 2
    for (int v = 0; v < panel_vectors; ++v) bias[v] = load_bias(t, v * lanes, keep.of[v]);
#pragma GCC unroll 12
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < panel_vectors; ++v) sum[r][v] = sum[r][v] + bias[v];
  }
  const PanelMasks all(panel_columns);  // known to the compiler: without masks
  const bool whole = t.columns == panel_columns;
  if (t.c_is_bf16 && whole)
    store_block<Bf16>(sum, t, all);
  else if (t.c_is_bf16)
    store_block<Bf16>(sum, t, keep);
  else if (whole)
    store_block<float>(sum, t, all);
  else
    store_block<float>(sum, t, keep);
}

/// sum + a · b, with one unit of A for all sixteen columns. Of pairs both products are added, and
/// numbers below 2^-126 count as zero.
template <Units kind>
TRIREME_PART inline Floats multiply_add(const Floats& sum, Unit a, const Floats& b) {
#if TRIREME_LANES == 16
  const __m512i all = _mm512_set1_epi32(static_cast<int>(a));
  if constexpr (kind == Units::pairs)
    return _mm512_dpbf16_ps(sum, (__m512bh)all, (__m512bh)b);
  else
    return fused(_mm512_castsi512_ps(all), b, sum);
#else
  return fused(every(std::bit_cast<float>(a)), b, sum);
#endif
}

/// The block of `rows` rows and a panel's columns over all of the terms' units. `packed`: A is a
/// panel; else it is in rows. The number of rows is fixed at compilation, so that all sums stay in
/// registers. Inlined into callers that know what is stored and how far apart rows are: with the 32
/// units of a head of 64 channels, that takes 0.95 of the time of a call.
template <Units kind, bool packed, int rows>
TRIREME_PART inline void inlined_block(const Terms& terms, const Target& target) {
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
  // Prefetches the lines of C: fetching them at the stores would take as long as the sums.
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::byte* line = target.c + r * target.c_stride * target.element_bytes();
    __builtin_prefetch(line, 1);
    __builtin_prefetch(line + panel_columns * target.element_bytes() - 1, 1);
  }
  if (target.c_is_bf16 && target.addend != nullptr)
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* line = target.addend + r * target.addend_stride;
      __builtin_prefetch(line);
      __builtin_prefetch(line + panel_columns - 1);
    }
  Floats sum[rows][panel_vectors];
#pragma GCC unroll 12
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < panel_vectors; ++v) sum[r][v] = zeros();
  const auto* b = reinterpret_cast<const float*>(terms.b);
  const std::byte* ahead = terms.ahead.first;
  for (std::int64_t line = 0; line < terms.units; line += line_units) {
    for (std::int64_t i = 0; i < terms.ahead.lines; ++i)
      __builtin_prefetch(ahead + i * terms.ahead.stride, 0, 2);
    ahead += terms.ahead.step;
    const std::int64_t end = std::min(line + line_units, terms.units);
    for (std::int64_t u = line; u < end; ++u, b += panel_columns) {
      Floats of_b[panel_vectors];
#pragma GCC unroll 2
      for (int v = 0; v < panel_vectors; ++v) of_b[v] = load_floats(b + v * lanes);
#pragma GCC unroll 12
      for (int r = 0; r < rows; ++r) {
        const Unit unit = unit_of(r);
#pragma GCC unroll 2
        for (int v = 0; v < panel_vectors; ++v)
          sum[r][v] = multiply_add<kind>(sum[r][v], unit, of_b[v]);
      }
#pragma GCC unroll 4
      for (std::int64_t i = 0; i < pointers; ++i) a[i] += unit_bytes * (packed ? panel_rows : 1);
    }
  }
  if (kind == Units::pairs && terms.half_unit) {
#pragma GCC unroll 12
    for (int r = 0; r < rows; ++r) {
      std::uint16_t alone;
      std::memcpy(&alone,
                  reinterpret_cast<const std::byte*>(terms.a + terms.units) + r * terms.row_stride,
                  sizeof alone);
#pragma GCC unroll 2
      for (int v = 0; v < panel_vectors; ++v)
        sum[r][v] = multiply_add<kind>(sum[r][v], alone, load_floats(b + v * lanes));
    }
  }
  store_sums(sum, target);
}

/// The same as a function that is not inlined.
template <Units kind, bool packed, int rows>
TRIREME_KERNEL void product_block(const Terms& terms, const Target& target) {
  inlined_block<kind, packed, rows>(terms, target);
}

/// Any number of rows up to `most`, which is a power of two but in the first call: blocks of ever
/// fewer rows. Small blocks leave multipliers idle: only the last rows of a matrix need them.
template <Units kind, bool packed, int most = panel_rows>
TRIREME_KERNEL void product_rows(const Terms& from, const Target& to, std::int64_t rows) {
  constexpr int fewer = most == 12 ? 8 : most == 6 ? 4 : most / 2;
  if (rows == most)
    return product_block<kind, packed, most>(from, to);
  Terms terms = from;
  Target target = to;
  if (rows > most) {
    product_block<kind, packed, most>(terms, target);
    skip_rows<packed>(terms, target, most);
    rows -= most;
  }
  if constexpr (fewer > 0)
    product_rows<kind, packed, fewer>(terms, target, rows);
}

/// The members of this level that BlockedMatmul needs.
template <Units kind>
struct Kernel {
  static constexpr Units units = kind;
  static constexpr std::int64_t panel_columns = TRIREME_LEVEL::panel_columns;
  static constexpr std::int64_t panel_rows = TRIREME_LEVEL::panel_rows;
  static constexpr std::int64_t panels_at_once = TRIREME_LANES == 16 ? 2 : 16;
  static constexpr auto pack_b = TRIREME_LEVEL::pack_b<kind>;
  static constexpr auto pack_b_transposed = TRIREME_LEVEL::pack_b_transposed<kind>;
  static constexpr auto pack_a_transposed = TRIREME_LEVEL::pack_a_transposed<kind>;
  static constexpr auto copy_rows = TRIREME_LEVEL::copy_rows<kind>;
  template <bool packed>
  static constexpr auto product_rows = TRIREME_LEVEL::product_rows<kind, packed>;
};

}  // namespace trireme::ops::cpu::TRIREME_LEVEL
