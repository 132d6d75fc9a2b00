// SPDX-License-Identifier: Apache-2.0
// Forward of attention in bf16 on tensor cores. A block has 64 queries of a head and processes 64
// keys and values at a time. The lanes that hold the scores keep the running maximum and sum of Dao
// et al. 2022, algorithm 1. Values are copied while scores are computed, and the next keys while
// values are accumulated. The last queries, which see the most keys, are scheduled first.
#include "ops/cuda/attention_dropout.cuh"
#include "ops/cuda/attention_tiles.cuh"

namespace trireme::ops::cuda {
namespace {

constexpr int keys_at_a_time = 64;
constexpr int blocks_of_keys = keys_at_a_time / 8;
static_assert(keys_at_a_time == own_rows, "all three tiles are filled alike");

/// For a lane's two rows. Scores are in units of log2(e) / scale.
struct Softmax {
  float scale;  // of scores, times log2(e)
  float largest[2] = {-INFINITY, -INFINITY};
  float total[2] = {};  // of the lane's own columns

  /// Replaces the scores by exp(score - largest), and hidden ones by 0; earlier sums must be
  /// multiplied by `shrink`. `column` is the lane's first one.
  __device__ void step(float (&scores)[blocks_of_keys][4],
                       float (&shrink)[2],
                       const Seen (&seen)[2],
                       int column) {
    float top[2] = {largest[0], largest[1]};
#pragma unroll
    for (int n = 0; n < blocks_of_keys; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (!seen[i / 2].has(column + 8 * n + i % 2))
          scores[n][i] = -INFINITY;
        top[i / 2] = fmaxf(top[i / 2], scores[n][i]);
      }
    float shift[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      top[half] = row_max(top[half]);
      // A row that has seen no key yet has no largest score.
      shift[half] = top[half] == -INFINITY ? 0.0F : top[half] * scale;
      shrink[half] = exp2f(largest[half] * scale - shift[half]);
      largest[half] = top[half];
      total[half] *= shrink[half];
    }
#pragma unroll
    for (int n = 0; n < blocks_of_keys; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[n][i] = exp2f(fmaf(scores[n][i], scale, -shift[i / 2]));
        total[i / 2] += scores[n][i];
      }
  }
};

template <int Width>
__global__ void __launch_bounds__(tile_threads) forward_kernel(Bf16* out,
                                                               float* lse,
                                                               const Bf16* qkv,
                                                               const std::int32_t* starts,
                                                               AttentionSizes sizes,
                                                               Dropout dropout,
                                                               float scale) {
  __shared__ Chunk shared[2 * keys_at_a_time + own_rows][Width / 8];
  const Tile<Width> keys{shared[0]}, values{shared[keys_at_a_time]},
      queries{shared[2 * keys_at_a_time]};
  const Place place(sizes, sizes.heads, gridDim.x - 1 - blockIdx.x);
  const Head head(sizes, place.sample, place.head);
  const Sight sight(sizes, starts, head.b);
  const int first = place.first, row = first + lane_row(), time = static_cast<int>(head.time);
  const int end = first + own_rows < time ? first + own_rows : time;
  const Seen seen[2] = {seen_by_query(sight, row), seen_by_query(sight, row + 8)};

  const auto take = [&](const Tile<Width>& tile, std::int64_t part, int s) {
    tile.template fill<keys_at_a_time>(qkv + part + s * head.step, head.step, time - s, head.D);
  };
  const int begin = static_cast<int>(sight.first_key(first)) / keys_at_a_time * keys_at_a_time;
  take(queries, head.q, first);
  take(keys, head.k, begin);
  const TileDropout mask{dropout, head};
  Softmax softmax{scale * log2_e};
  float sums[Width / 8][4] = {};
  for (int s = begin; s < end; s += keys_at_a_time) {
    arrive();
    take(values, head.v, s);
    float scores[blocks_of_keys][4] = {}, shrink[2];
    multiply(scores, queries, keys);
    arrive();
    if (s + keys_at_a_time < end)
      take(keys, head.k, s + keys_at_a_time);
    softmax.step(scores, shrink, seen, s + lane_column());
#pragma unroll
    for (int c = 0; c < Width / 8; ++c)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[c][i] *= shrink[i / 2];
    if (dropout.active()) {
      const std::uint32_t kept = mask.kept_of_queries<blocks_of_keys>(row, s + lane_column());
#pragma unroll
      for (int n = 0; n < blocks_of_keys; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[n][i] = dropped(scores[n][i], mask.factor(), kept, n, i);
    }
    gather(sums, scores, values);
  }
  const float total[2] = {row_sum(softmax.total[0]), row_sum(softmax.total[1])};
  write_rows<Width>(out + head.out + first * head.out_step, head.out_step, time - first, head.D,
                    sums, {1.0F / total[0], 1.0F / total[1]});
#pragma unroll
  for (int half = 0; half < 2; ++half)
    if (lane_column() == 0 && row + 8 * half < time)
      lse[head.stats + row + 8 * half] = softmax.largest[half] * scale + logf(total[half]);
}

}  // namespace

void tiled_attention_forward(const AttentionForward& call,
                             const AttentionSizes& sizes,
                             RawStream stream) {
  with_width(sizes.head_channels, [&](auto width) {
    launch("tiled_attention_forward", forward_kernel<width()>, tiled_shape(sizes, sizes.heads),
           stream, call.out.as<Bf16>(), call.lse.as<float>(), call.qkv.as<Bf16>(),
           call.starts.as_optional<std::int32_t>(), sizes, call.dropout, scale_of(sizes));
  });
}

}  // namespace trireme::ops::cuda
