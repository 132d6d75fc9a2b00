// SPDX-License-Identifier: Apache-2.0
// Products of small fp32 tiles in a thread's scratch, for attention, where a library call per tile
// would cost as much as the tile. Sums run over the depth in order, so the size of a register block
// does not change bits. Included once per level (for_each_level.hpp): with AVX-512 blocks are 12
// rows by 32 columns, else 6 by 16.
// 1. A block reads a line of B and one broadcast element of A per row and step of the depth; its
//    accumulators stay in registers from the first step to the last.
// 2. Rows are taken in blocks of 12, 4 and 1 (6, 2 and 1 without AVX-512). Columns are taken sixteen
//    at a time: B must have room, and C is written, up to the next multiple of 16.
// 3. Triangle skips what causality makes zero, in units of a row block: half of the work on the
//    diagonal.
// 4. No alignment is required.

namespace trireme::ops::cpu::TRIREME_LEVEL {
namespace {

/// `rows` rows by `vectors` times sixteen columns of C, over the depth [depth_begin, depth_end).
/// `a` begins at the block's first row, b at its first column.
template <int rows, int vectors, bool a_transposed>
TRIREME_PART inline void register_block(float* c,
                                        std::int64_t c_stride,
                                        TileOperand a,
                                        TileOperand b,
                                        std::int64_t depth_begin,
                                        std::int64_t depth_end,
                                        bool accumulate) {
  Floats sum[rows][vectors];
#pragma GCC unroll 12
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v)
      sum[r][v] = accumulate ? load_floats(c + r * c_stride + v * lanes) : zeros();
  for (std::int64_t k = depth_begin; k < depth_end; ++k) {
    Floats line[vectors];
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) line[v] = load_floats(b.data + k * b.stride + v * lanes);
#pragma GCC unroll 12
    for (int r = 0; r < rows; ++r) {
      const float one = a_transposed ? a.data[k * a.stride + r] : a.data[r * a.stride + k];
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) sum[r][v] = fused(every(one), line[v], sum[r][v]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) store_floats(c + r * c_stride + v * lanes, sum[r][v]);
}

/// All columns of `rows` rows from `first_row` on, except those that `triangle` skips.
template <int rows, int vectors, bool a_transposed>
TRIREME_PART inline void row_block(float* c,
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
  std::int64_t n = 0;
  if constexpr (vectors > 1)
    for (; n + lanes < width; n += vectors * lanes)
      register_block<rows, vectors, a_transposed>(c + first_row * c_stride + n, c_stride, block,
                                                  {b.data + n, b.stride}, begin, end, accumulate);
  for (; n < width; n += lanes)
    register_block<rows, 1, a_transposed>(c + first_row * c_stride + n, c_stride, block,
                                          {b.data + n, b.stride}, begin, end, accumulate);
}

/// C[rows, columns] = (or +=) A[rows, depth] · B[depth, columns]; a transposed A is stored as
/// [depth, rows]. Strides in elements; B and C have room for `columns` rounded up to 16.
template <bool a_transposed>
TRIREME_PART inline void tile_product(float* c,
                                      std::int64_t c_stride,
                                      TileOperand a,
                                      TileOperand b,
                                      std::int64_t rows,
                                      std::int64_t columns,
                                      std::int64_t depth,
                                      Triangle triangle,
                                      bool accumulate) {
  std::int64_t row = 0;
  const auto blocks = [&]<int block_rows>() TRIREME_PART {
    for (; row + block_rows <= rows; row += block_rows)
      row_block<block_rows, TRIREME_LANES / 16 + 1, a_transposed>(c, c_stride, a, b, row, columns,
                                                                  depth, triangle, accumulate);
  };
  constexpr int most_rows = TRIREME_LANES == 16 ? 12 : 6;
  blocks.template operator()<most_rows>();
  blocks.template operator()<most_rows / 3>();
  blocks.template operator()<1>();
}

}  // namespace
}  // namespace trireme::ops::cpu::TRIREME_LEVEL
