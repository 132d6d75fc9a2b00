// SPDX-License-Identifier: Apache-2.0
// Backward of attention in bf16 on tensor cores, in two kernels that each recompute the scores, so
// that every sum has one owner: dQ by blocks of 64 queries, which process 32 keys at a time, and dK
// and dV by blocks of 64 keys, which process 32 queries at a time, for each head that shares the
// keys. Each tile of the other side is copied during products that do not read it. Source of the
// formulas: Dao et al. 2022, appendix B.
#include "ops/cuda/attention_dropout.cuh"
#include "ops/cuda/attention_tiles.cuh"

namespace trireme::ops::cuda {
namespace {

constexpr int rows_at_a_time = 32;
constexpr int blocks_of_rows = rows_at_a_time / 8;

using Scores = float[blocks_of_rows][4];

/// Two tiles of own rows and two of the other side's.
template <int Width>
struct Tiles {
  Tile<Width> own_a, own_b, other_a, other_b;
  __device__ explicit Tiles(Chunk (*shared)[Width / 8])
      : own_a{shared[0]},
        own_b{shared[own_rows]},
        other_a{shared[2 * own_rows]},
        other_b{shared[2 * own_rows + rows_at_a_time]} {}
  static constexpr int rows = 2 * (own_rows + rows_at_a_time);
};

/// The sums, over channels, of the products of the lane's two rows.
template <int Width>
__device__ inline void row_products(float (&sums)[2], Tile<Width> x, Tile<Width> y) {
  sums[0] = sums[1] = 0;
#pragma unroll
  for (int c = 0; c < Width / 8; c += 2) {
    std::uint32_t a[4], b[4];
    x.load_a(a, c);
    y.load_a(b, c);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float low = __uint_as_float(a[i] << 16U) * __uint_as_float(b[i] << 16U);
      sums[i % 2] +=
          fmaf(__uint_as_float(a[i] & 0xffff0000U), __uint_as_float(b[i] & 0xffff0000U), low);
    }
  }
  sums[0] = row_sum(sums[0]);
  sums[1] = row_sum(sums[1]);
}

/// dQ, and delta[t] = Σ dout[t] · out[t].
template <int Width>
__global__ void __launch_bounds__(tile_threads) query_kernel(Bf16* dqkv,
                                                             AttentionSaved<Bf16> saved,
                                                             float* delta,
                                                             AttentionSizes sizes,
                                                             Dropout dropout,
                                                             float scale) {
  __shared__ Chunk shared[Tiles<Width>::rows][Width / 8];
  const Tiles<Width> tiles(shared);
  const Place place(sizes, sizes.heads, gridDim.x - 1 - blockIdx.x);
  const Head head(sizes, place.sample, place.head);
  const Sight sight(sizes, saved.starts, head.b);
  const int first = place.first, row = first + lane_row(), time = static_cast<int>(head.time);
  const int end = first + own_rows < time ? first + own_rows : time;
  const std::int64_t out = head.out + first * head.out_step;
  tiles.own_a.template fill<own_rows>(saved.out + out, head.out_step, time - first, head.D);
  tiles.own_b.template fill<own_rows>(saved.dout + out, head.out_step, time - first, head.D);
  arrive();
  float product[2], normalizer[2] = {};
  row_products(product, tiles.own_a, tiles.own_b);
#pragma unroll
  for (int half = 0; half < 2; ++half)
    if (const int t = row + 8 * half; t < time) {
      normalizer[half] = saved.lse[head.stats + t] * log2_e;
      if (lane_column() == 0)
        delta[head.stats + t] = product[half];
    }
  __syncthreads();
  tiles.own_a.template fill<own_rows>(saved.qkv + head.q + first * head.step, head.step,
                                      time - first, head.D);
  const Seen seen[2] = {seen_by_query(sight, row), seen_by_query(sight, row + 8)};
  const TileDropout mask{dropout, head};
  float sums[Width / 8][4] = {};
  const auto take = [&](const Tile<Width>& tile, std::int64_t part, int s) {
    tile.template fill<rows_at_a_time>(saved.qkv + part + s * head.step, head.step, time - s,
                                       head.D);
  };
  const int begin = static_cast<int>(sight.first_key(first)) / rows_at_a_time * rows_at_a_time;
  take(tiles.other_b, head.v, begin);
  for (int s = begin; s < end; s += rows_at_a_time) {
    arrive();
    take(tiles.other_a, head.k, s);
    Scores ds = {}, dp = {};
    multiply(dp, tiles.own_b, tiles.other_b);
    arrive();
    if (s + rows_at_a_time < end)
      take(tiles.other_b, head.v, s + rows_at_a_time);
    multiply(ds, tiles.own_a, tiles.other_a);
    const std::uint32_t kept = mask.kept_of_queries<blocks_of_rows>(row, s + lane_column());
#pragma unroll
    for (int n = 0; n < blocks_of_rows; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float p = seen[i / 2].has(s + lane_column() + 8 * n + i % 2)
                            ? exp2f(fmaf(ds[n][i], scale * log2_e, -normalizer[i / 2]))
                            : 0.0F;
        ds[n][i] = p * (dropped(dp[n][i], mask.factor(), kept, n, i) - product[i / 2]);
      }
    gather(sums, ds, tiles.other_a);
  }
  write_rows<Width>(dqkv + head.q + first * head.step, head.step, time - first, head.D, sums,
                    {scale, scale});
}

/// For one query head: replaces the scores by P after dropout, and dP by dS. The lane's columns are
/// queries from `t` on, its rows keys from `row` on.
__device__ inline void differentiate(Scores& p,
                                     Scores& dp,
                                     const TileDropout& mask,
                                     const Seen (&seen)[2],
                                     int row,
                                     int t,
                                     const float* lse,
                                     const float* delta,
                                     float scale) {
  const std::uint32_t kept = mask.kept_of_keys<blocks_of_rows>(row, t);
#pragma unroll
  for (int n = 0; n < blocks_of_rows; ++n, t += 8)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const bool there = t + i < mask.head.time;
      const float normalizer = there ? lse[t + i] * log2_e : 0.0F;
      const float product = there ? delta[t + i] : 0.0F;
#pragma unroll
      for (int j = i; j < 4; j += 2) {
        const float exact =
            seen[j / 2].has(t + i) ? exp2f(fmaf(p[n][j], scale * log2_e, -normalizer)) : 0.0F;
        p[n][j] = dropped(exact, mask.factor(), kept, n, j);
        dp[n][j] = exact * (dropped(dp[n][j], mask.factor(), kept, n, j) - product);
      }
    }
}

template <int Width>
__global__ void __launch_bounds__(tile_threads) key_kernel(Bf16* dqkv,
                                                           AttentionSaved<Bf16> saved,
                                                           const float* delta,
                                                           AttentionSizes sizes,
                                                           Dropout dropout,
                                                           float scale) {
  __shared__ Chunk shared[Tiles<Width>::rows][Width / 8];
  const Tiles<Width> tiles(shared);
  const Place place(sizes, sizes.key_value_heads, blockIdx.x);
  const std::int64_t group = sizes.heads / sizes.key_value_heads;
  const Head own(sizes, place.sample, place.head * group);
  const Sight sight(sizes, saved.starts, own.b);
  const int first = place.first, row = first + lane_row(), time = static_cast<int>(own.time);
  const int last = first + own_rows < time ? first + own_rows - 1 : time - 1;
  const int end = static_cast<int>(sight.end_of_queries(last));
  const Seen seen[2] = {seen_by_key(sight, row), seen_by_key(sight, row + 8)};
  const std::int64_t to_first = first * own.step;
  tiles.own_a.template fill<own_rows>(saved.qkv + own.k + to_first, own.step, time - first, own.D);
  tiles.own_b.template fill<own_rows>(saved.qkv + own.v + to_first, own.step, time - first, own.D);
  float dk[Width / 8][4] = {}, dv[Width / 8][4] = {};
  for (std::int64_t h = own.h; h < own.h + group; ++h) {
    const Head head(sizes, place.sample, h);
    const auto take_queries = [&](int t) {
      tiles.other_a.template fill<rows_at_a_time>(saved.qkv + head.q + t * head.step, head.step,
                                                  time - t, head.D);
    };
    take_queries(first);
    for (int t = first; t < end; t += rows_at_a_time) {
      arrive();
      tiles.other_b.template fill<rows_at_a_time>(saved.dout + head.out + t * head.out_step,
                                                  head.out_step, time - t, head.D);
      Scores p = {}, dp = {};
      multiply(p, tiles.own_a, tiles.other_a);
      arrive();
      multiply(dp, tiles.own_b, tiles.other_b);
      differentiate(p, dp, {dropout, head}, seen, row, t + lane_column(), saved.lse + head.stats,
                    delta + head.stats, scale);
      gather(dk, dp, tiles.other_a);
      __syncthreads();
      if (t + rows_at_a_time < end)
        take_queries(t + rows_at_a_time);
      gather(dv, p, tiles.other_b);
    }
  }
  write_rows<Width>(dqkv + own.k + to_first, own.step, time - first, own.D, dk, {scale, scale});
  write_rows<Width>(dqkv + own.v + to_first, own.step, time - first, own.D, dv, {1, 1});
}

}  // namespace

void tiled_attention_backward(const AttentionBackward& call,
                              float* delta,
                              const AttentionSizes& sizes,
                              RawStream stream) {
  auto* dqkv = call.dqkv.as<Bf16>();
  const AttentionSaved<Bf16> saved(call);
  with_width(sizes.head_channels, [&](auto width) {
    launch("tiled_attention_backward of queries", query_kernel<width()>,
           tiled_shape(sizes, sizes.heads), stream, dqkv, saved, delta, sizes, call.dropout,
           scale_of(sizes));
    launch("tiled_attention_backward of keys", key_kernel<width()>,
           tiled_shape(sizes, sizes.key_value_heads), stream, dqkv, saved, delta, sizes,
           call.dropout, scale_of(sizes));
  });
}

}  // namespace trireme::ops::cuda
