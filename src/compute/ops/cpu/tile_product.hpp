// SPDX-License-Identifier: Apache-2.0
// Products of small fp32 tiles in a thread's scratch, for attention, where a library call per tile
// would cost as much as the tile. Sums run over the depth in order, so the size of a register block
// does not change bits. `Level` is the level for which the calling kernel is compiled: with AVX-512
// blocks are 12 rows by 32 columns (24 accumulators of 16 lanes), else 6 by 16 (12 of 8 lanes). The
// vector type has the width of the registers: g++ 12 keeps wider ones in memory.
//
// 1. A block reads two registers of B and one broadcast element of A per row and step of the depth;
//    its accumulators stay in registers from the first step to the last.
// 2. Rows are taken in blocks of 12, 4 and 1 (6, 2 and 1 without AVX-512). Columns are taken in
//    whole registers: B must have room, and C is written, up to the next multiple of 16.
// 3. Triangle leaves out what causality makes zero, in units of a row block: half of the work on
//    the diagonal.
// 4. No alignment is asked for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "ops/cpu/loops.hpp"

namespace trireme::ops::cpu {

/// The part of a square tile of scores (rows are queries, columns are keys) that causality leaves,
/// as the product that uses the tile sees it.
enum class Triangle : std::uint8_t {
  none,            ///< every element counts
  result,          ///< columns beyond the row block are not computed
  depth_to_row,    ///< A is lower triangular: the depth ends with the row block
  depth_from_row,  ///< transposed A is lower triangular: the depth starts with the row block
};

/// What a kernel is compiled for.
enum class Level : std::uint8_t { any, avx512 };

template <Level level>
struct Vector {
  using Lanes = float __attribute__((vector_size(32), aligned(4), may_alias));
  static constexpr std::int64_t lanes = 8;
};
template <>
struct Vector<Level::avx512> {
  using Lanes = float __attribute__((vector_size(64), aligned(4), may_alias));
  static constexpr std::int64_t lanes = 16;
};

/// Of any level: columns may be written up to the next multiple of it.
inline constexpr std::int64_t most_lanes = Vector<Level::avx512>::lanes;

/// A tile in scratch; its rows are `stride` elements apart.
struct TileOperand {
  const float* data;
  std::int64_t stride;
};

/// `rows` rows by `vectors` registers of C, over the depth [depth_begin, depth_end). `a` begins at
/// the block's first row, b at its first column.
template <Level level, int rows, int vectors, bool a_transposed>
TRIREME_INLINE void register_block(float* c,
                                   std::int64_t c_stride,
                                   TileOperand a,
                                   TileOperand b,
                                   std::int64_t depth_begin,
                                   std::int64_t depth_end,
                                   bool accumulate) {
  using Lanes = typename Vector<level>::Lanes;
  constexpr std::int64_t lanes = Vector<level>::lanes;
  Lanes sum[rows][vectors];
#pragma GCC unroll 12
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v)
      sum[r][v] =
          accumulate ? *reinterpret_cast<const Lanes*>(c + r * c_stride + v * lanes) : Lanes{};
  for (std::int64_t k = depth_begin; k < depth_end; ++k) {
    Lanes line[vectors];
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v)
      line[v] = *reinterpret_cast<const Lanes*>(b.data + k * b.stride + v * lanes);
#pragma GCC unroll 12
    for (int r = 0; r < rows; ++r) {
      const float one = a_transposed ? a.data[k * a.stride + r] : a.data[r * a.stride + k];
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) sum[r][v] += one * line[v];
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v)
      *reinterpret_cast<Lanes*>(c + r * c_stride + v * lanes) = sum[r][v];
}

/// All columns of `rows` rows from `first_row` on, but those that `triangle` leaves out.
template <Level level, int rows, int vectors, bool a_transposed>
TRIREME_INLINE void row_block(float* c,
                              std::int64_t c_stride,
                              TileOperand a,
                              TileOperand b,
                              std::int64_t first_row,
                              std::int64_t columns,
                              std::int64_t depth,
                              Triangle triangle,
                              bool accumulate) {
  constexpr std::int64_t lanes = Vector<level>::lanes;
  const std::int64_t row_end = first_row + rows;
  const std::int64_t begin = triangle == Triangle::depth_from_row ? first_row : 0;
  const std::int64_t end = triangle == Triangle::depth_to_row ? std::min(depth, row_end) : depth;
  const std::int64_t width = triangle == Triangle::result ? std::min(columns, row_end) : columns;
  const TileOperand block{a.data + first_row * (a_transposed ? 1 : a.stride), a.stride};
  std::int64_t n = 0;
  if constexpr (vectors > 1)
    for (; n + lanes < width; n += vectors * lanes)
      register_block<level, rows, vectors, a_transposed>(c + first_row * c_stride + n, c_stride,
                                                         block, {b.data + n, b.stride}, begin, end,
                                                         accumulate);
  for (; n < width; n += lanes)
    register_block<level, rows, 1, a_transposed>(c + first_row * c_stride + n, c_stride, block,
                                                 {b.data + n, b.stride}, begin, end, accumulate);
}

/// C[rows, columns] = (or +=) A[rows, depth] · B[depth, columns]; a transposed A is stored as
/// [depth, rows]. Strides in elements; B and C have room for `columns` rounded up to 16.
template <Level level, bool a_transposed>
TRIREME_INLINE void tile_product(float* c,
                                 std::int64_t c_stride,
                                 TileOperand a,
                                 TileOperand b,
                                 std::int64_t rows,
                                 std::int64_t columns,
                                 std::int64_t depth,
                                 Triangle triangle,
                                 bool accumulate) {
  std::int64_t row = 0;
  const auto blocks = [&]<int block_rows, int vectors>() __attribute__((always_inline)) {
    for (; row + block_rows <= rows; row += block_rows)
      row_block<level, block_rows, vectors, a_transposed>(c, c_stride, a, b, row, columns, depth,
                                                          triangle, accumulate);
  };
  if constexpr (level == Level::avx512) {
    blocks.template operator()<12, 2>();
    blocks.template operator()<4, 2>();
    blocks.template operator()<1, 2>();
  } else {
    blocks.template operator()<6, 2>();
    blocks.template operator()<2, 2>();
    blocks.template operator()<1, 2>();
  }
}

}  // namespace trireme::ops::cpu
