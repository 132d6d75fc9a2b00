// SPDX-License-Identifier: Apache-2.0
// Sums over the rows of a matrix, one per column: the gradients of biases and norm parameters.
//
// Rows are cut into slices. A block adds up one slice for 32·N columns: each of its 8 warps takes
// every eighth row, reading N neighbouring columns per lane; the warps' sums are added in order.
// The slices' sums are in the stream's workspace until a second kernel adds them to the result, in
// a fixed order. Division and order, and so the bits, depend only on the sizes.
#pragma once

#include <algorithm>

#include "ops/cuda/loops.cuh"
#include "ops/operation.hpp"

namespace trireme::ops::cuda {

inline constexpr int column_warps = 8;
inline constexpr int total_warps = 16;

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
#pragma unroll 4  // additions stay in order; reads are issued ahead of them
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

/// The destinations of the K sums of a column; null ones are skipped.
template <int K>
struct ColumnTotals {
  float* to[K];
};

/// to[k][column] += the slices' sums, k = blockIdx.y. A block processes 32 columns, each of its
/// warps every 16th slice, so that several reads are in flight at the same time.
template <int K>
__global__ void column_totals_kernel(ColumnTotals<K> totals,
                                     const float* partial,
                                     std::int64_t slices,
                                     std::int64_t columns) {
  __shared__ float shared[total_warps][warp_lanes];
  float* to = totals.to[0];
  for (unsigned k = 1; k < K; ++k)
    if (blockIdx.y == k)
      to = totals.to[k];
  if (to == nullptr)
    return;
  const int lane = threadIdx.x, warp = threadIdx.y;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * warp_lanes + lane;
  float sum = 0;
  if (column < columns) {
#pragma unroll 8
    for (std::int64_t s = warp; s < slices; s += total_warps)
      sum += partial[(s * K + blockIdx.y) * columns + column];
  }
  shared[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || column >= columns)
    return;
  float total = 0;
  for (int w = 0; w < total_warps; ++w) total += shared[w][lane];
  to[column] += total;
}

/// Adds K sums of each column that are in `partial` = [slices, K, columns].
template <int K>
void add_column_totals(const char* name,
                       float* const (&to)[K],
                       const float* partial,
                       std::int64_t slices,
                       std::int64_t columns,
                       RawStream stream) {
  ColumnTotals<K> totals{};
  for (int k = 0; k < K; ++k) totals.to[k] = to[k];
  const dim3 columns_and_sums(static_cast<unsigned>(blocks_for(columns, warp_lanes)), K);
  launch(name, column_totals_kernel<K>, {columns_and_sums, dim3(warp_lanes, total_warps)}, stream,
         totals, partial, slices, columns);
}

/// Uses the queue's workspace. N columns per lane if `packed`: columns are then a multiple of N,
/// and rows aligned.
template <int K, int N, class Body>
void add_column_sums(const char* name,
                     Body body,
                     float* const (&to)[K],
                     std::int64_t rows,
                     std::int64_t columns,
                     bool packed,
                     const Queue& queue) {
  constexpr std::int64_t most_slices = 128, fewest_rows = 4 * column_warps;
  const auto room =
      static_cast<std::int64_t>(queue.workspace_bytes / sizeof(float)) / (K * columns);
  std::int64_t slices =
      std::min({most_slices, blocks_for(rows, fewest_rows), std::max<std::int64_t>(1, room)});
  const std::int64_t rows_per_slice = blocks_for(rows, slices);
  slices = blocks_for(rows, rows_per_slice);
  auto* partial = reinterpret_cast<float*>(queue.workspace);
  const dim3 threads(warp_lanes, column_warps);
  const dim3 blocks(static_cast<unsigned>(blocks_for(columns, warp_lanes * (packed ? N : 1))),
                    static_cast<unsigned>(slices));
  launch(name, packed ? column_slices_kernel<K, N, Body> : column_slices_kernel<K, 1, Body>,
         {blocks, threads}, queue.stream, body, partial, rows, columns, rows_per_slice);
  add_column_totals<K>(name, to, partial, slices, columns, queue.stream);
}

}  // namespace trireme::ops::cuda
