// SPDX-License-Identifier: Apache-2.0
// A warp computes one query row (forward, dQ) or one key row (dK, dV). It processes the other side
// 32 rows at a time: first a lane per row for the scores, then a lane per channel for the sums.
// Every sum has one owner and one order, so no atomics are needed. A key row processes the query
// heads that share it one after the other.
#include "ops/cuda/attention.hpp"
#include "ops/cuda/attention_head.cuh"
#include "ops/cuda/loops.cuh"

namespace trireme::ops::cuda {
namespace {

constexpr int warps = 4;
constexpr int channels_per_lane = static_cast<int>(most_head_channels) / warp_lanes;

/// The state of this warp's query row.
__device__ inline Head head_of_query(const AttentionSizes& s) {
  const std::int64_t row = row_of_warp();
  return {s, row / (s.heads * s.time), row / s.time % s.heads};
}

__device__ inline bool outside(const AttentionSizes& s, std::int64_t heads) {
  return row_of_warp() >= s.batch * heads * s.time;
}

/// One row of D channels, read by the whole warp into its own shared memory.
template <class T>
__device__ inline void fetch(float* to, const T* from, std::int64_t D) {
  for (std::int64_t c = threadIdx.x; c < D; c += warp_lanes) to[c] = to_float(from[c]);
}

template <class T>
__device__ inline float dot(const float* a, const T* b, std::int64_t D) {
  float sum = 0;
  for (std::int64_t c = 0; c < D; ++c) sum = fmaf(a[c], to_float(b[c]), sum);
  return sum;
}

/// sums[i] += Σ_j weight of lane j · row j [channel i·32 + lane], for j below `count`.
template <class T>
__device__ inline void add_rows(float (&sums)[channels_per_lane],
                                float weight,
                                const T* rows,
                                std::int64_t step,
                                int count,
                                std::int64_t D) {
  for (int j = 0; j < count; ++j) {
    const float w = __shfl_sync(0xffffffffU, weight, j);
    for (int i = 0; i < channels_per_lane; ++i)
      if (const std::int64_t c = i * warp_lanes + static_cast<int>(threadIdx.x); c < D)
        sums[i] = fmaf(w, to_float(rows[j * step + c]), sums[i]);
  }
}

template <class T>
__device__ inline void write_row(T* to,
                                 const float (&sums)[channels_per_lane],
                                 float factor,
                                 std::int64_t D) {
  for (int i = 0; i < channels_per_lane; ++i)
    if (const std::int64_t c = i * warp_lanes + static_cast<int>(threadIdx.x); c < D)
      to[c] = from_float<T>(sums[i] * factor);
}

__device__ inline float kept(const Dropout& d, const Head& head, std::int64_t t, std::int64_t s) {
  return d.active()
             ? dropout_factor(d, static_cast<std::uint64_t>(head.b),
                              static_cast<std::uint64_t>((head.h * head.time + t) * head.time + s))
             : 1.0F;
}

__device__ inline int rows_in_tile(std::int64_t begin, std::int64_t end) {
  return end - begin < warp_lanes ? static_cast<int>(end - begin) : warp_lanes;
}

template <class T>
__global__ void forward_kernel(T* out,
                               float* lse,
                               const T* qkv,
                               const std::int32_t* starts,
                               AttentionSizes sizes,
                               Dropout dropout,
                               float scale) {
  __shared__ float rows[warps][most_head_channels];
  if (outside(sizes, sizes.heads))
    return;
  const Head head = head_of_query(sizes);
  const int lane = static_cast<int>(threadIdx.x);
  const std::int64_t t = row_of_warp() % sizes.time;
  float* query = rows[threadIdx.y];
  fetch(query, qkv + head.q + t * head.step, head.D);
  __syncwarp();
  float largest = -INFINITY, sum = 0;
  float sums[channels_per_lane] = {};
  for (std::int64_t begin = Sight(sizes, starts, head.b).first_key(t); begin <= t;
       begin += warp_lanes) {
    const std::int64_t s = begin + lane;
    const bool seen = s <= t;
    const float score = seen ? dot(query, qkv + head.k + s * head.step, head.D) * scale : -INFINITY;
    const float top = fmaxf(largest, warp_max(score));
    const float p = seen ? expf(score - top) : 0.0F;
    const float shrink = expf(largest - top);
    largest = top;
    sum = sum * shrink + warp_sum(p);
    for (float& value : sums) value *= shrink;
    add_rows(sums, seen ? p * kept(dropout, head, t, s) : 0.0F, qkv + head.v + begin * head.step,
             head.step, rows_in_tile(begin, t + 1), head.D);
  }
  write_row(out + head.out + t * head.out_step, sums, 1.0F / sum, head.D);
  if (lane == 0)
    lse[head.stats + t] = largest + logf(sum);
}

/// dQ, and delta[t] = Σ dout[t] · out[t].
template <class T>
__global__ void query_kernel(T* dqkv,
                             AttentionSaved<T> saved,
                             float* delta,
                             AttentionSizes sizes,
                             Dropout dropout,
                             float scale) {
  __shared__ float rows[warps][2][most_head_channels];
  if (outside(sizes, sizes.heads))
    return;
  const Head head = head_of_query(sizes);
  const int lane = static_cast<int>(threadIdx.x);
  const std::int64_t t = row_of_warp() % sizes.time;
  float* query = rows[threadIdx.y][0];
  float* dout = rows[threadIdx.y][1];
  fetch(query, saved.qkv + head.q + t * head.step, head.D);
  fetch(dout, saved.dout + head.out + t * head.out_step, head.D);
  __syncwarp();
  float product = 0;
  for (std::int64_t c = lane; c < head.D; c += warp_lanes)
    product = fmaf(dout[c], to_float(saved.out[head.out + t * head.out_step + c]), product);
  product = warp_sum(product);
  if (lane == 0)
    delta[head.stats + t] = product;
  const float normalizer = saved.lse[head.stats + t];
  float sums[channels_per_lane] = {};
  for (std::int64_t begin = Sight(sizes, saved.starts, head.b).first_key(t); begin <= t;
       begin += warp_lanes) {
    const std::int64_t s = begin + lane;
    float ds = 0;
    if (s <= t) {
      const float p =
          expf(dot(query, saved.qkv + head.k + s * head.step, head.D) * scale - normalizer);
      const float dp = dot(dout, saved.qkv + head.v + s * head.step, head.D);
      ds = p * (dp * kept(dropout, head, t, s) - product);
    }
    add_rows(sums, ds, saved.qkv + head.k + begin * head.step, head.step,
             rows_in_tile(begin, t + 1), head.D);
  }
  write_row(dqkv + head.q + t * head.step, sums, scale, head.D);
}

template <class T>
__global__ void key_kernel(T* dqkv,
                           AttentionSaved<T> saved,
                           const float* delta,
                           AttentionSizes sizes,
                           Dropout dropout,
                           float scale) {
  __shared__ float rows[warps][2][most_head_channels];
  if (outside(sizes, sizes.key_value_heads))
    return;
  const int lane = static_cast<int>(threadIdx.x);
  const std::int64_t row = row_of_warp(), group = sizes.heads / sizes.key_value_heads;
  const std::int64_t s = row % sizes.time, sample = row / (sizes.key_value_heads * sizes.time);
  const std::int64_t first = row / sizes.time % sizes.key_value_heads * group;
  const Head own(sizes, sample, first);
  float* key = rows[threadIdx.y][0];
  float* value = rows[threadIdx.y][1];
  fetch(key, saved.qkv + own.k + s * own.step, own.D);
  fetch(value, saved.qkv + own.v + s * own.step, own.D);
  __syncwarp();
  float dk[channels_per_lane] = {}, dv[channels_per_lane] = {};
  const std::int64_t end = Sight(sizes, saved.starts, sample).end_of_queries(s);
  for (std::int64_t h = first; h < first + group; ++h) {
    const Head head(sizes, sample, h);
    for (std::int64_t begin = s; begin < end; begin += warp_lanes) {
      const std::int64_t t = begin + lane;
      float p = 0, ds = 0;
      if (t < end) {
        const float exact = expf(dot(key, saved.qkv + head.q + t * head.step, head.D) * scale -
                                 saved.lse[head.stats + t]);
        const float dp = dot(value, saved.dout + head.out + t * head.out_step, head.D);
        const float factor = kept(dropout, head, t, s);
        p = exact * factor;
        ds = exact * (dp * factor - delta[head.stats + t]);
      }
      const int count = rows_in_tile(begin, end);
      add_rows(dv, p, saved.dout + head.out + begin * head.out_step, head.out_step, count, head.D);
      add_rows(dk, ds, saved.qkv + head.q + begin * head.step, head.step, count, head.D);
    }
  }
  write_row(dqkv + own.k + s * own.step, dk, scale, own.D);
  write_row(dqkv + own.v + s * own.step, dv, 1.0F, own.D);
}

}  // namespace

template <class T>
void attention_forward(const AttentionForward& call,
                       const AttentionSizes& sizes,
                       RawStream stream) {
  launch("attention_forward", forward_kernel<T>,
         warp_per_row(sizes.batch * sizes.heads * sizes.time, warps), stream, call.out.as<T>(),
         call.lse.as<float>(), call.qkv.as<T>(), call.starts.as_optional<std::int32_t>(), sizes,
         call.dropout, scale_of(sizes));
}

template <class T>
void attention_backward(const AttentionBackward& call,
                        float* delta,
                        const AttentionSizes& sizes,
                        RawStream stream) {
  const AttentionSaved<T> saved(call);
  launch("attention_backward of queries", query_kernel<T>,
         warp_per_row(sizes.batch * sizes.heads * sizes.time, warps), stream, call.dqkv.as<T>(),
         saved, delta, sizes, call.dropout, scale_of(sizes));
  launch("attention_backward of keys", key_kernel<T>,
         warp_per_row(sizes.batch * sizes.key_value_heads * sizes.time, warps), stream,
         call.dqkv.as<T>(), saved, delta, sizes, call.dropout, scale_of(sizes));
}

#define TRIREME_INSTANTIATE(T)                                                                   \
  template void attention_forward<T>(const AttentionForward&, const AttentionSizes&, RawStream); \
  template void attention_backward<T>(const AttentionBackward&, float*, const AttentionSizes&,   \
                                      RawStream);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(Bf16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::ops::cuda
