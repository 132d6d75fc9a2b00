// SPDX-License-Identifier: Apache-2.0
// Products of small fp32 tiles that lie in a thread's scratch, for attention, where a library call
// per tile would cost as much as the tile. Register blocks are 6 rows by 16 columns: 12
// accumulators of 8 lanes with AVX2, 6 of 16 lanes with AVX-512. Sums run over the depth in order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "ops/cpu_loops.hpp"

namespace trireme::ops::cpu {

/// Which part of a square tile of scores (rows are queries, columns are keys) is not zero by
/// causality, seen from the product that it takes part in.
enum class Triangle : std::uint8_t {
  none,            ///< every element counts
  result,          ///< columns beyond the row block are not computed
  depth_to_row,    ///< A is lower triangular: the depth ends with the row block
  depth_from_row,  ///< transposed A is lower triangular: the depth starts with the row block
};

using Lanes = float __attribute__((vector_size(64), aligned(4), may_alias));
inline constexpr std::int64_t lanes = 16;

struct TileOperand {
  const float* data;
  std::int64_t stride;
};

template <int rows, bool a_transposed>
TRIREME_INLINE void register_block(float* c,
                                   std::int64_t c_stride,
                                   TileOperand a,
                                   TileOperand b,
                                   std::int64_t depth_begin,
                                   std::int64_t depth_end,
                                   bool accumulate) {
  Lanes sum[rows];
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r)
    sum[r] = accumulate ? *reinterpret_cast<const Lanes*>(c + r * c_stride) : Lanes{};
  for (std::int64_t k = depth_begin; k < depth_end; ++k) {
    const Lanes line = *reinterpret_cast<const Lanes*>(b.data + k * b.stride);
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r)
      sum[r] += (a_transposed ? a.data[k * a.stride + r] : a.data[r * a.stride + k]) * line;
  }
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r) *reinterpret_cast<Lanes*>(c + r * c_stride) = sum[r];
}

template <int rows, bool a_transposed>
TRIREME_INLINE void row_block(float* c,
                              std::int64_t c_stride,
                              TileOperand a,
                              TileOperand b,
                              std::int64_t first_row,
                              std::int64_t columns,
                              std::int64_t depth,
                              Triangle triangle,
                              bool accumulate) {
  const std::int64_t row_end = first_row + rows;
  const std::int64_t begin = triangle == Triangle::depth_from_row ? first_row : 0;
  const std::int64_t end = triangle == Triangle::depth_to_row ? std::min(depth, row_end) : depth;
  const std::int64_t width = triangle == Triangle::result ? std::min(columns, row_end) : columns;
  const TileOperand block{a.data + first_row * (a_transposed ? 1 : a.stride), a.stride};
  for (std::int64_t n = 0; n < width; n += lanes)
    register_block<rows, a_transposed>(c + first_row * c_stride + n, c_stride, block,
                                       {b.data + n, b.stride}, begin, end, accumulate);
}

/// C[rows, columns] = (or +=) A[rows, depth] · B[depth, columns]; a transposed A is stored as
/// [depth, rows]. Strides in elements; B and C have room for `columns` rounded up to 16.
template <bool a_transposed>
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
  for (; row + 6 <= rows; row += 6)
    row_block<6, a_transposed>(c, c_stride, a, b, row, columns, depth, triangle, accumulate);
  for (; row + 2 <= rows; row += 2)
    row_block<2, a_transposed>(c, c_stride, a, b, row, columns, depth, triangle, accumulate);
  if (row < rows)
    row_block<1, a_transposed>(c, c_stride, a, b, row, columns, depth, triangle, accumulate);
}

}  // namespace trireme::ops::cpu
