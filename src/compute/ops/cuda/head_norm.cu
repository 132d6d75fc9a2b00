// SPDX-License-Identifier: Apache-2.0
// Norms of heads: a warp per head of a row, eight warps per block. A lane owns pairs of channels
// that are rotated together, or single channels without rotation, so no other lane reads what it
// overwrites.
#include "ops/cuda/columns.cuh"
#include "ops/cuda/loops.cuh"
#include "ops/head_norm.hpp"

namespace trireme::ops::cuda {
namespace {

constexpr int heads_per_block = 8;

/// A head and its scale factor.
template <class T>
struct NormedHead {
  const HeadNorm& all;
  std::int64_t row, head;

  __device__ float gain(std::int64_t c) const {
    const T* from = all.gain_of<T>(head);
    return from != nullptr ? to_float(from[c]) : 1.0F;
  }
  /// Offset of the head in a packed row, and in the retained tensors.
  __device__ std::int64_t packed_at() const {
    return row * all.shape.stride + head * all.channels();
  }
  __device__ std::int64_t kept_at() const { return (row * all.heads() + head) * all.channels(); }
};

/// The gradient of channel c of a head before the rotation; d is the gradient after it.
template <class T>
__device__ inline float turned_back(const HeadNorm& all,
                                    std::int64_t row,
                                    const T* d,
                                    std::int64_t c) {
  if (all.table.empty())
    return to_float(d[c]);
  const std::int64_t half = all.channels() / 2;
  const bool first = c < half;
  const float* angles = all.angles_of(row) + (first ? c : c - half);
  const float other = to_float(d[first ? c + half : c - half]) * angles[half];
  return to_float(d[c]) * angles[0] + (first ? other : -other);
}

template <class T>
__global__ void head_forward_kernel(HeadNormForward call, std::int64_t units) {
  const HeadNorm& all = call.norm;
  const std::int64_t unit = row_of_warp();
  if (unit >= units)
    return;
  const NormedHead<T> head{all, unit / all.heads(), unit % all.heads()};
  T* x = call.packed.as<T>() + head.packed_at();
  float squares = 0;
  for (std::int64_t c = threadIdx.x; c < all.channels(); c += warp_lanes)
    squares += to_float(x[c]) * to_float(x[c]);
  const float s =
      1.0F / sqrtf(warp_sum(squares) / static_cast<float>(all.channels()) + all.epsilon);
  if (!call.raw.empty()) {
    if (threadIdx.x == 0)
      call.rstd.as<float>()[unit] = s;
    for (std::int64_t c = threadIdx.x; c < all.channels(); c += warp_lanes)
      call.raw.as<T>()[head.kept_at() + c] = x[c];
  }
  __syncwarp();  // the whole head has been read
  if (all.table.empty()) {
    for (std::int64_t c = threadIdx.x; c < all.channels(); c += warp_lanes)
      x[c] = from_float<T>(to_float(x[c]) * s * head.gain(c));
    return;
  }
  const std::int64_t half = all.channels() / 2;
  const float* angles = all.angles_of(head.row);
  for (std::int64_t j = threadIdx.x; j < half; j += warp_lanes) {
    const float a = to_float(x[j]) * s * head.gain(j);
    const float b = to_float(x[half + j]) * s * head.gain(half + j);
    x[j] = from_float<T>(a * angles[j] - b * angles[half + j]);
    x[half + j] = from_float<T>(b * angles[j] + a * angles[half + j]);
  }
}

/// dx = s (u - xhat mean(u xhat)) with u = dz gain, xhat = x s; dz is the gradient, rotated back.
template <class T>
__global__ void head_backward_kernel(HeadNormBackward call, std::int64_t units) {
  const HeadNorm& all = call.norm;
  const std::int64_t unit = row_of_warp();
  if (unit >= units)
    return;
  const NormedHead<T> head{all, unit / all.heads(), unit % all.heads()};
  T* d = call.d_packed.as<T>() + head.packed_at();
  const T* x = call.raw.as<T>() + head.kept_at();
  const float s = call.rstd.as<float>()[unit];
  float product = 0;
  for (std::int64_t c = threadIdx.x; c < all.channels(); c += warp_lanes)
    product += turned_back(all, head.row, d, c) * head.gain(c) * (to_float(x[c]) * s);
  product = warp_sum(product) / static_cast<float>(all.channels());
  __syncwarp();  // the whole head has been read
  const auto made = [&](float dz, std::int64_t c) {
    return from_float<T>(s * (dz * head.gain(c) - to_float(x[c]) * s * product));
  };
  if (all.table.empty()) {
    for (std::int64_t c = threadIdx.x; c < all.channels(); c += warp_lanes)
      d[c] = made(to_float(d[c]), c);
    return;
  }
  const std::int64_t half = all.channels() / 2;
  for (std::int64_t j = threadIdx.x; j < half; j += warp_lanes) {
    const float first = turned_back(all, head.row, d, j);
    const float second = turned_back(all, head.row, d, half + j);
    d[j] = made(first, j);
    d[half + j] = made(second, half + j);
  }
}

/// The terms of the gradient of one gain; a row is a head of a row here.
template <class T>
struct GainTerms {
  HeadNormBackward call;
  std::int64_t first_head, count;  // of queries, or of keys
  template <int N>
  __device__ void add(float (&sums)[1][N], std::int64_t unit, std::int64_t column) const {
    const HeadNorm& all = call.norm;
    const NormedHead<T> head{all, unit / count, first_head + unit % count};
    const T* d = call.d_packed.as<T>() + head.packed_at();
    const T* x = call.raw.as<T>() + head.kept_at();
    const float s = call.rstd.as<float>()[head.row * all.heads() + head.head];
    for (int k = 0; k < N; ++k)
      sums[0][k] += turned_back(all, head.row, d, column + k) * (to_float(x[column + k]) * s);
  }
};

/// A thread per pair of channels: it reads and writes both, and no other thread does.
template <class T>
struct RotateLoop {
  Rotate call;
  std::int64_t half;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const std::int64_t j = i % half, h = i / half % call.shape.heads;
    const std::int64_t row = i / half / call.shape.heads;
    const float* angles = angles_of(row, call.table, call.positions, call.shape) + j;
    const float cosine = angles[0],
                sine = angles[half] * (call.direction == Direction::inverse ? -1.0F : 1.0F);
    T* first = call.packed.as<T>() + row * call.shape.stride + 2 * h * half + j;
    T* second = first + half;
    const float a = to_float(*first), b = to_float(*second);
    *first = from_float<T>(a * cosine - b * sine);
    *second = from_float<T>(b * cosine + a * sine);
  }
};

}  // namespace

template <class T>
void run(const Queue& queue, const Rotate& call) {
  const std::int64_t half = call.shape.head_channels / 2;
  loop<1>(call.name, RotateLoop<T>{call, half},
          call.packed.elements / call.shape.stride * call.shape.heads * half, false, queue.stream);
}

template <class T>
void run(const Queue& queue, const HeadNormForward& call) {
  const RotaryShape& s = call.norm.shape;
  const std::int64_t units = call.packed.elements / s.stride * s.heads;
  if (units > 0)
    launch(call.name, head_forward_kernel<T>, warp_per_row(units, heads_per_block), queue.stream,
           call, units);
}

template <class T>
void run(const Queue& queue, const HeadNormBackward& call) {
  const RotaryShape& s = call.norm.shape;
  const std::int64_t rows = call.d_packed.elements / s.stride, units = rows * s.heads;
  if (units == 0)
    return;
  const auto add_gain = [&](View to, std::int64_t first, std::int64_t count) {
    if (!to.empty() && count > 0)
      add_column_sums<1, 1>(call.name, GainTerms<T>{call, first, count}, {to.as<float>()},
                            rows * count, s.head_channels, false, queue);
  };
  add_gain(call.d_query_gain, 0, call.norm.query_heads);
  add_gain(call.d_key_gain, call.norm.query_heads, s.heads - call.norm.query_heads);
  launch(call.name, head_backward_kernel<T>, warp_per_row(units, heads_per_block), queue.stream,
         call, units);
}

TRIREME_CUDA_BODIES(Rotate);
TRIREME_CUDA_BODIES(HeadNormForward);
TRIREME_CUDA_BODIES(HeadNormBackward);

}  // namespace trireme::ops::cuda
