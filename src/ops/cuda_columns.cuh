// SPDX-License-Identifier: Apache-2.0
// Sums over the rows of a matrix, one per column: what bias and layer norm gradients are.
//
// Rows are cut into slices. A block adds up one slice for 32·N columns: each of its 8 warps takes
// every eighth row, reading N neighbouring columns per lane; the warps' sums are added in order.
// The slices' sums lie in the stream's workspace until a second kernel adds them, in order, to the
// result. The cut depends on the sizes alone, so the bits do too.
#pragma once

#include <algorithm>
#include <cstddef>

#include "ops/cuda_loops.cuh"

namespace trireme::ops::cuda {

inline constexpr int column_warps = 8;

/// body.add<N>(sums, row, column) adds the terms of N columns to K sums each.
template <int K, int N, class Body>
__global__ void column_slices_kernel(Body body,
                                     float* partial,
                                     std::int64_t rows,
                                     std::int64_t columns,
                                     std::int64_t rows_per_slice) {
  __shared__ float shared[column_warps][K][N][warp_lanes];
  const int lane = threadIdx.x, warp = threadIdx.y;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * warp_lanes + lane) * N;
  const std::int64_t begin = blockIdx.y * rows_per_slice;
  const std::int64_t end = begin + rows_per_slice < rows ? begin + rows_per_slice : rows;
  float sums[K][N] = {};
  if (column < columns)
    for (std::int64_t row = begin + warp; row < end; row += column_warps)
      body.template add<N>(sums, row, column);
  for (int k = 0; k < K; ++k)
    for (int n = 0; n < N; ++n) shared[warp][k][n][lane] = sums[k][n];
  __syncthreads();
  if (warp > 0 || column >= columns)
    return;
  for (int k = 0; k < K; ++k)
    for (int n = 0; n < N; ++n) {
      float sum = 0;
      for (int w = 0; w < column_warps; ++w) sum += shared[w][k][n][lane];
      partial[(static_cast<std::int64_t>(blockIdx.y) * K + k) * columns + column + n] = sum;
    }
}

/// to[k][column] += the slices' sums; a null `to` is left out.
template <int K>
struct ColumnTotals {
  float* to[K];
  const float* partial;
  std::int64_t slices, columns;

  template <int N>
  __device__ void run(std::int64_t column) const {
    for (int k = 0; k < K; ++k) {
      if (to[k] == nullptr)
        continue;
      float total = 0;
      for (std::int64_t s = 0; s < slices; ++s) total += partial[(s * K + k) * columns + column];
      to[k][column] += total;
    }
  }
};

/// `workspace` has `workspace_bytes`. N columns per lane when `packed`: columns are a multiple of N
/// then, and rows aligned.
template <int K, int N, class Body>
void add_column_sums(const char* name,
                     Body body,
                     float* const (&to)[K],
                     std::int64_t rows,
                     std::int64_t columns,
                     bool packed,
                     std::byte* workspace,
                     std::size_t workspace_bytes,
                     RawStream stream) {
  constexpr std::int64_t most_slices = 128, fewest_rows = 4 * column_warps;
  const auto room = static_cast<std::int64_t>(workspace_bytes / sizeof(float)) / (K * columns);
  std::int64_t slices =
      std::min({most_slices, blocks_for(rows, fewest_rows), std::max<std::int64_t>(1, room)});
  const std::int64_t rows_per_slice = blocks_for(rows, slices);
  slices = blocks_for(rows, rows_per_slice);
  auto* partial = reinterpret_cast<float*>(workspace);
  const dim3 threads(warp_lanes, column_warps);
  const dim3 blocks(static_cast<unsigned>(blocks_for(columns, warp_lanes * (packed ? N : 1))),
                    static_cast<unsigned>(slices));
  launch(name, packed ? column_slices_kernel<K, N, Body> : column_slices_kernel<K, 1, Body>,
         {blocks, threads}, stream, body, partial, rows, columns, rows_per_slice);
  ColumnTotals<K> totals{};
  for (int k = 0; k < K; ++k) totals.to[k] = to[k];
  totals.partial = partial;
  totals.slices = slices;
  totals.columns = columns;
  loop<1>(name, totals, columns, false, stream);
}

}  // namespace trireme::ops::cuda
