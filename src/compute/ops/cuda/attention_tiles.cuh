// SPDX-License-Identifier: Apache-2.0
// Shared by the tiled attention kernels. A block owns 64 rows of queries or keys, 16 per warp, and
// processes the rows of the other side tile by tile through shared memory. A lane holds its part of
// the scores and of the sums in the layout of C in mma.cuh: of 16 rows by 8 columns, rows lane / 4
// and lane / 4 + 8, columns 2 (lane % 4) and the next.
// 1. The scores' rows are the block's own rows, so the scores of a tile, rounded to bf16, are
//    operand A of the next product. They never leave the registers.
// 2. A row sees the columns of one range (attention_head.cuh); queries see keys and keys queries.
// 3. Channels beyond the head's, up to the next width with a kernel, are zeros in shared memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/cuda/attention.hpp"
#include "ops/cuda/attention_head.cuh"
#include "ops/cuda/loops.cuh"
#include "ops/cuda/mma.cuh"

namespace trireme::ops::cuda {

inline constexpr int own_rows = 64;
inline constexpr int rows_per_warp = 16;
inline constexpr int tile_threads = own_rows / rows_per_warp * warp_lanes;
inline constexpr float log2_e = 1.4426950408889634F;

__device__ inline int lane_of_warp() {
  return static_cast<int>(threadIdx.x) % warp_lanes;
}
/// The first of the warp's rows, among the block's.
__device__ inline int warp_row() {
  return static_cast<int>(threadIdx.x) / warp_lanes * rows_per_warp;
}
/// The first of the lane's two rows, among the block's.
__device__ inline int lane_row() {
  return warp_row() + lane_of_warp() / 4;
}
/// The first of the lane's two columns, among eight.
__device__ inline int lane_column() {
  return lane_of_warp() % 4 * 2;
}

/// Combines the four lanes that share a row; every lane gets the same result.
__device__ inline float row_sum(float value) {
  value += __shfl_xor_sync(0xffffffffU, value, 1);
  return value + __shfl_xor_sync(0xffffffffU, value, 2);
}
__device__ inline float row_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xffffffffU, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xffffffffU, value, 2));
}

/// Eight channels of a row.
struct alignas(16) Chunk {
  std::uint32_t words[4];
};

/// Rows of Width channels in shared memory. The chunks of a row are swizzled by its number, so that
/// the same chunk of eight consecutive rows covers all banks.
template <int Width>
struct Tile {
  static constexpr int chunks = Width / 8;
  static_assert(Width % 32 == 0);
  Chunk* at;

  /// Chunk c + next; next is 0, or 1 where c is even.
  __device__ Chunk* chunk(int row, int c, int next = 0) const {
    return at + row * chunks + (c ^ (next ^ (Width % 64 == 0 ? row & 7 : row >> 1 & 3)));
  }
  /// Called by the whole block, which sees the data after arrive(). Copies Rows rows, `step`
  /// elements apart: those before `rows`, and zeros after them. Requires: at least one row exists.
  template <int Rows>
  __device__ void fill(const Bf16* from,
                       std::int64_t step,
                       std::int64_t rows,
                       std::int64_t channels) const {
#pragma unroll 1  // addresses would be kept in registers
    for (int i = static_cast<int>(threadIdx.x); i < Rows * chunks; i += tile_threads) {
      const int row = i / chunks, c = i % chunks;
      const bool there = row < rows && 8 * c < channels;
      copy_ahead(chunk(row, c), there ? from + row * step + 8 * c : from, there);
    }
  }
  /// The warp's rows, chunks c and c + 1, as an operand A.
  __device__ void load_a(std::uint32_t (&a)[4], int c) const {
    load_matrices(a, chunk(warp_row() + lane_of_warp() % 16, c, lane_of_warp() / 16));
  }
};

/// Waits until all copies of the block have completed and its threads have finished reading.
__device__ inline void arrive() {
  wait_for_copies();
  __syncthreads();
}

/// scores += the warp's own rows · other rows transposed.
template <int Width, int Blocks>
__device__ inline void multiply(float (&scores)[Blocks][4], Tile<Width> own, Tile<Width> other) {
  const int lane = lane_of_warp();
#pragma unroll 2  // fragments ahead would be kept in registers
  for (int c = 0; c < Width / 8; c += 2) {
    std::uint32_t a[4], b[4];
    own.load_a(a, c);
#pragma unroll
    for (int n = 0; n < Blocks; n += 2) {
      load_matrices(b, other.chunk(8 * n + lane / 16 * 8 + lane % 8, c, lane / 8 % 2));
      multiply_add(scores[n], a, b[0], b[1]);
      multiply_add(scores[n + 1], a, b[2], b[3]);
    }
  }
}

/// sums += weights, rounded to bf16, · other rows.
template <int Width, int Blocks>
__device__ inline void gather(float (&sums)[Width / 8][4],
                              const float (&weights)[Blocks][4],
                              Tile<Width> other) {
  const int lane = lane_of_warp();
#pragma unroll
  for (int k = 0; k < Blocks; k += 2) {
    const std::uint32_t a[4] = {rounded_pair(weights[k][0], weights[k][1]),
                                rounded_pair(weights[k][2], weights[k][3]),
                                rounded_pair(weights[k + 1][0], weights[k + 1][1]),
                                rounded_pair(weights[k + 1][2], weights[k + 1][3])};
#pragma unroll
    for (int c = 0; c < Width / 8; c += 2) {
      std::uint32_t b[4];
      load_transposed(b, other.chunk(8 * k + lane % 16, c, lane / 16));
      multiply_add(sums[c], a, b[0], b[1]);
      multiply_add(sums[c + 1], a, b[2], b[3]);
    }
  }
}

/// Stores the lane's two rows of `sums`, each times a factor, to rows `step` elements apart, of
/// which `rows` exist.
template <int Width>
__device__ inline void write_rows(Bf16* to,
                                  std::int64_t step,
                                  std::int64_t rows,
                                  std::int64_t channels,
                                  const float (&sums)[Width / 8][4],
                                  const float (&factors)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = lane_row() + 8 * half;
    if (row >= rows)
      continue;
#pragma unroll
    for (int c = 0; c < Width / 8; ++c)
      if (const int channel = 8 * c + lane_column(); channel < channels)
        *reinterpret_cast<std::uint32_t*>(to + row * step + channel) =
            rounded_pair(sums[c][2 * half] * factors[half], sums[c][2 * half + 1] * factors[half]);
  }
}

/// The columns that a row sees; positions fit into 32 bits, as those of documents do.
struct Seen {
  int begin = 0, end = 0;
  __device__ bool has(int column) const { return begin <= column && column < end; }
};
__device__ inline Seen seen_by_query(const Sight& sight, int t) {
  return t < sight.time ? Seen{static_cast<int>(sight.first_key(t)), t + 1} : Seen{};
}
__device__ inline Seen seen_by_key(const Sight& sight, int s) {
  return s < sight.time ? Seen{s, static_cast<int>(sight.end_of_queries(s))} : Seen{};
}

/// A block per 64 rows of `heads` heads per sample; blocks iterate over heads first, then tiles.
inline LaunchShape tiled_shape(const AttentionSizes& s, std::int64_t heads) {
  return {static_cast<unsigned>(s.batch * heads * blocks_for(s.time, own_rows)), tile_threads};
}

/// What a block owns: the rows from `first` on of a head of a sample. `place`: among all blocks.
struct Place {
  std::int64_t sample, head;
  int first;
  __device__ Place(const AttentionSizes& s, std::int64_t heads, unsigned place) {
    const auto all = static_cast<unsigned>(s.batch * heads);
    sample = place % all / heads;
    head = place % all % heads;
    first = static_cast<int>(place / all) * own_rows;
  }
};

/// call(width) with the next width that has a kernel, a std::integral_constant.
template <class Call>
void with_width(std::int64_t channels, const Call& call) {
  if (channels <= 32)
    call(std::integral_constant<int, 32>());
  else if (channels <= 64)
    call(std::integral_constant<int, 64>());
  else if (channels <= 96)
    call(std::integral_constant<int, 96>());
  else
    call(std::integral_constant<int, 128>());
}

}  // namespace trireme::ops::cuda
