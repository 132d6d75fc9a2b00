// SPDX-License-Identifier: Apache-2.0
// A warp per row, eight rows per block: each lane goes through its packs of the row. Rows are some
// kilobytes long, so the second and third pass over one find it in a cache.
#include "ops/cuda/columns.cuh"
#include "ops/cuda/dropout.cuh"
#include "ops/cuda/elementwise.hpp"
#include "ops/cuda/layer_norm.hpp"
#include "ops/cuda/loops.cuh"

namespace trireme::ops::cuda {
namespace {

constexpr int rows_per_block = 8;

/// Rows that a block has in work at a time, and its threads at most.
constexpr int rows_at_once = 2;
constexpr int most_slice_threads = 512;
/// Blocks of `threads` that an H200 runs at a time by their registers. Another GPU takes the same
/// number, so that the order of its sums is the same.
std::int64_t slices_at_once(std::int64_t threads) {
  constexpr std::int64_t multiprocessors = 132;
  return multiprocessors * (most_slice_threads / threads);
}

/// This warp's row; rows stay below 2^31 blocks of 8.
__device__ inline std::int64_t row_of_warp() {
  return static_cast<std::int64_t>(blockIdx.x) * rows_per_block + threadIdx.y;
}

/// 0 where rows are not centered.
template <class T>
__device__ inline float mean_of(const LayerNormSaved<T>& saved, std::int64_t row) {
  return saved.mean != nullptr ? saved.mean[row] : 0.0F;
}

/// N gains from channel c on; ones without gains.
template <int N, class T>
__device__ inline Pack<T, N> gains_at(const T* gamma, std::int64_t c) {
  if (gamma != nullptr)
    return load<N>(gamma + c);
  Pack<T, N> ones;
  for (int k = 0; k < N; ++k) ones.v[k] = from_float<T>(1.0F);
  return ones;
}

/// N elements of what is normalized, from channel c on; a sum is stored first.
template <int N, class T>
__device__ inline Pack<T, N> take(const LayerNormInput<T>& input,
                                  std::int64_t row,
                                  std::int64_t c,
                                  std::int64_t channels) {
  const std::int64_t at = row * channels + c;
  auto pack = load<N>(input.x + at);
  if (input.branch == nullptr)
    return pack;
  const auto branch = load<N>(input.branch + at);
  float values[N];
  for (int k = 0; k < N; ++k) values[k] = to_float(branch.v[k]);
  if (input.dropout.active())
    drop<N>(values, input.dropout, static_cast<std::uint64_t>(row / input.rows_per_sample),
            static_cast<std::uint64_t>(row % input.rows_per_sample * channels + c));
  for (int k = 0; k < N; ++k) pack.v[k] = from_float<T>(values[k] + to_float(pack.v[k]));
  store<N>(input.sum + at, pack);
  return pack;
}

template <int N, class T>
__global__ void forward_kernel(T* y,
                               float* mean,
                               float* rstd,
                               LayerNormInput<T> input,
                               const T* gamma,
                               const T* beta,
                               std::int64_t rows,
                               std::int64_t channels,
                               float epsilon) {
  const std::int64_t row = row_of_warp();
  if (row >= rows)
    return;
  const auto first = static_cast<std::int64_t>(threadIdx.x) * N;
  constexpr std::int64_t step = warp_lanes * N;
  float sum = 0;
  for (std::int64_t c = first; c < channels; c += step) {
    const auto pack = take<N>(input, row, c, channels);
    for (const T value : pack.v) sum += to_float(value);
  }
  const float inverse = 1.0F / static_cast<float>(channels);
  const float m = mean != nullptr ? warp_sum(sum) * inverse : 0.0F;
  const T* from = input.normalized() + row * channels;  // a lane reads what it has stored itself
  float squares = 0;
  for (std::int64_t c = first; c < channels; c += step) {
    const auto pack = load<N>(from + c);
    for (const T value : pack.v) squares += (to_float(value) - m) * (to_float(value) - m);
  }
  const float s = 1.0F / sqrtf(warp_sum(squares) * inverse + epsilon);
  if (threadIdx.x == 0) {
    if (mean != nullptr)
      mean[row] = m;
    rstd[row] = s;
  }
  for (std::int64_t c = first; c < channels; c += step) {
    auto pack = load<N>(from + c);
    const auto scale = gains_at<N>(gamma, c);
    Pack<T, N> shift{};
    if (beta != nullptr)
      shift = load<N>(beta + c);
    for (int k = 0; k < N; ++k)
      pack.v[k] = from_float<T>((to_float(pack.v[k]) - m) * s * to_float(scale.v[k]) +
                                to_float(shift.v[k]));
    store<N>(y + row * channels + c, pack);
  }
}

/// dx = rstd (g - mean(g) - xhat mean(g xhat)) with g = dy gamma, xhat = (x - mean) rstd. Without
/// means, of x and of g.
///
/// A block goes through its slice of the rows, some at a time, and a thread owns N channels: what
/// it reads of a row serves dx as well as its channels' sums of dgamma, dbeta and dbias.
template <int N, class T>
struct BackwardSlice {
  T* dx;
  const LayerNormSaved<T>& saved;
  std::int64_t channels, c;
  bool inside, accumulate;  // a thread outside reads channel 0, and adds nothing
  Pack<T, N> gamma{};
  float dgamma[N] = {}, dbeta[N] = {}, dbias[N] = {};

  /// `shared` = [warps][R][2]: each warp's sums of g and of g xhat. No thread may still read it.
  template <int R>
  __device__ void add_rows(std::int64_t first, float* shared) {
    const int warps = static_cast<int>(blockDim.x) / warp_lanes;
    const int lane = static_cast<int>(threadIdx.x) % warp_lanes;
    const int warp = static_cast<int>(threadIdx.x) / warp_lanes;
    Pack<T, N> dy[R], x[R], before[R] = {};
    float mean[R], rstd[R];
    for (int r = 0; r < R; ++r) {
      const std::int64_t at = (first + r) * channels + c;
      dy[r] = load<N>(saved.dy + at);
      x[r] = load<N>(saved.x + at);
      if (accumulate)
        before[r] = load<N>(dx + at);
      mean[r] = mean_of(saved, first + r);
      rstd[r] = saved.rstd[first + r];
    }
    for (int r = 0; r < R; ++r) {
      float sum = 0, product = 0;
      for (int k = 0; k < N; ++k) {
        const float d = to_float(dy[r].v[k]), g = d * to_float(gamma.v[k]);
        const float xhat = (to_float(x[r].v[k]) - mean[r]) * rstd[r];
        dgamma[k] += d * xhat;
        dbeta[k] += d;
        sum += g;
        product += g * xhat;
      }
      sum = warp_sum(sum);
      product = warp_sum(product);
      if (lane == 0) {
        shared[(warp * R + r) * 2] = sum;
        shared[(warp * R + r) * 2 + 1] = product;
      }
    }
    __syncthreads();
    if (!inside)
      return;
    float totals[2 * R] = {};
#pragma unroll 1
    for (int w = 0; w < warps; ++w)
      for (int i = 0; i < 2 * R; ++i) totals[i] += shared[w * 2 * R + i];
    const float inverse = 1.0F / static_cast<float>(channels);
    for (int r = 0; r < R; ++r) {
      const float sum = saved.mean != nullptr ? totals[2 * r] * inverse : 0.0F;
      const float product = totals[2 * r + 1] * inverse;
      Pack<T, N> made;
      for (int k = 0; k < N; ++k) {
        const float g = to_float(dy[r].v[k]) * to_float(gamma.v[k]);
        const float xhat = (to_float(x[r].v[k]) - mean[r]) * rstd[r];
        made.v[k] = from_float<T>(to_float(before[r].v[k]) + rstd[r] * (g - sum - xhat * product));
        dbias[k] += to_float(made.v[k]);
      }
      store<N>(dx + (first + r) * channels + c, made);
    }
  }
};

/// partial = [slices][3][channels]: the sums of dgamma, dbeta and dbias.
template <int N, class T>
__global__ __launch_bounds__(most_slice_threads) void backward_slices_kernel(
    T* dx,
    LayerNormSaved<T> saved,
    float* partial,
    std::int64_t rows,
    std::int64_t channels,
    std::int64_t rows_per_slice,
    bool accumulate) {
  // Two in turns, so that one barrier per turn suffices.
  __shared__ float shared[2][rows_at_once * 2 * most_slice_threads / warp_lanes];
  const std::int64_t own = static_cast<std::int64_t>(threadIdx.x) * N;
  const bool inside = own < channels;
  BackwardSlice<N, T> slice{dx, saved, channels, inside ? own : 0, inside, accumulate};
  if (inside)
    slice.gamma = gains_at<N>(saved.gamma, own);
  std::int64_t row = blockIdx.x * rows_per_slice;
  const std::int64_t end = row + rows_per_slice < rows ? row + rows_per_slice : rows;
  int turn = 0;
  for (; row + rows_at_once <= end; row += rows_at_once, turn ^= 1)
    slice.template add_rows<rows_at_once>(row, shared[turn]);
  for (; row < end; ++row, turn ^= 1) slice.template add_rows<1>(row, shared[turn]);
  if (!inside)
    return;
  float* to = partial + static_cast<std::int64_t>(blockIdx.x) * 3 * channels + own;
  for (int k = 0; k < N; ++k) {
    to[k] = slice.dgamma[k];
    to[channels + k] = slice.dbeta[k];
    to[2 * channels + k] = slice.dbias[k];
  }
}

/// dx where a row is too long for that, in a pass of its own.
template <int N, class T>
__global__ void backward_kernel(
    T* dx, LayerNormSaved<T> saved, std::int64_t rows, std::int64_t channels, bool accumulate) {
  const std::int64_t row = row_of_warp();
  if (row >= rows)
    return;
  const T* dy = saved.dy + row * channels;
  const T* x = saved.x + row * channels;
  const float m = mean_of(saved, row), s = saved.rstd[row];
  const auto first = static_cast<std::int64_t>(threadIdx.x) * N;
  constexpr std::int64_t step = warp_lanes * N;
  float sum = 0, product = 0;
  for (std::int64_t c = first; c < channels; c += step) {
    const auto d = load<N>(dy + c), at = load<N>(x + c), scale = gains_at<N>(saved.gamma, c);
    for (int k = 0; k < N; ++k) {
      const float g = to_float(d.v[k]) * to_float(scale.v[k]);
      sum += g;
      product += g * ((to_float(at.v[k]) - m) * s);
    }
  }
  const float inverse = 1.0F / static_cast<float>(channels);
  sum = saved.mean != nullptr ? warp_sum(sum) * inverse : 0.0F;
  product = warp_sum(product) * inverse;
  for (std::int64_t c = first; c < channels; c += step) {
    const auto d = load<N>(dy + c), at = load<N>(x + c), scale = gains_at<N>(saved.gamma, c);
    T* to = dx + row * channels + c;
    Pack<T, N> pack{};
    if (accumulate)
      pack = load<N>(to);
    for (int k = 0; k < N; ++k) {
      const float g = to_float(d.v[k]) * to_float(scale.v[k]);
      pack.v[k] = from_float<T>(to_float(pack.v[k]) +
                                s * (g - sum - (to_float(at.v[k]) - m) * s * product));
    }
    store<N>(to, pack);
  }
}

/// The terms of dgamma (first) and dbeta.
template <class T>
struct GradientTerms {
  LayerNormSaved<T> saved;
  std::int64_t channels;
  template <int N>
  __device__ void add(float (&sums)[2][N], std::int64_t row, std::int64_t column) const {
    const auto d = load<N>(saved.dy + row * channels + column);
    const auto at = load<N>(saved.x + row * channels + column);
    const float m = mean_of(saved, row), s = saved.rstd[row];
    for (int k = 0; k < N; ++k) {
      sums[0][k] += to_float(d.v[k]) * ((to_float(at.v[k]) - m) * s);
      sums[1][k] += to_float(d.v[k]);
    }
  }
};

LaunchShape shape_of_rows(std::int64_t rows) {
  return {static_cast<unsigned>(blocks_for(rows, rows_per_block)),
          dim3(warp_lanes, rows_per_block)};
}

}  // namespace

template <class T>
void layer_norm_forward(T* y,
                        float* mean,
                        float* rstd,
                        const LayerNormInput<T>& input,
                        const T* gamma,
                        const T* beta,
                        std::int64_t rows,
                        std::int64_t channels,
                        float epsilon,
                        RawStream stream) {
  if (rows == 0)
    return;
  constexpr int N = pack_elements<T>;
  // What is null counts as aligned.
  const bool packed =
      channels % N == 0 && aligned(y, input.x, input.branch, input.sum, gamma, beta);
  launch("layer_norm_forward", packed ? forward_kernel<N, T> : forward_kernel<1, T>,
         shape_of_rows(rows), stream, y, mean, rstd, input, gamma, beta, rows, channels, epsilon);
}

template <class T>
void layer_norm_backward(T* dx,
                         const LayerNormGradients& to,
                         const LayerNormSaved<T>& saved,
                         std::int64_t rows,
                         std::int64_t channels,
                         bool accumulate,
                         RawStream stream) {
  if (rows == 0)
    return;
  constexpr int N = pack_elements<T>;
  const bool packed = channels % N == 0 && aligned(dx, saved.dy, saved.x, saved.gamma);
  if (const std::int64_t threads = blocks_for(channels, (packed ? N : 1) * warp_lanes) * warp_lanes;
      threads <= most_slice_threads) {
    const auto room = static_cast<std::int64_t>(saved.workspace_bytes / sizeof(float));
    std::int64_t slices =
        std::min({blocks_for(rows, rows_at_once), slices_at_once(threads), room / (3 * channels)});
    const std::int64_t rows_per_slice =
        blocks_for(blocks_for(rows, slices), rows_at_once) * rows_at_once;
    slices = blocks_for(rows, rows_per_slice);
    auto* partial = reinterpret_cast<float*>(saved.workspace);
    launch("layer_norm_backward",
           packed ? backward_slices_kernel<N, T> : backward_slices_kernel<1, T>,
           {static_cast<unsigned>(slices), static_cast<unsigned>(threads)}, stream, dx, saved,
           partial, rows, channels, rows_per_slice, accumulate);
    add_column_totals<3>("layer_norm_backward", {to.gamma, to.beta, to.bias}, partial, slices,
                         channels, stream);
    return;
  }
  add_column_sums<2, N>("layer_norm_backward", GradientTerms<T>{saved, channels},
                        {to.gamma, to.beta}, rows, channels, packed, saved.workspace,
                        saved.workspace_bytes, stream);
  launch("layer_norm_backward", packed ? backward_kernel<N, T> : backward_kernel<1, T>,
         shape_of_rows(rows), stream, dx, saved, rows, channels, accumulate);
  if (to.bias != nullptr)
    bias_backward<T>(to.bias, dx, rows, channels, saved.workspace, saved.workspace_bytes, stream);
}

#define TRIREME_INSTANTIATE(T)                                                               \
  template void layer_norm_forward(T*, float*, float*, const LayerNormInput<T>&, const T*,   \
                                   const T*, std::int64_t, std::int64_t, float, RawStream);  \
  template void layer_norm_backward(T*, const LayerNormGradients&, const LayerNormSaved<T>&, \
                                    std::int64_t, std::int64_t, bool, RawStream);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(Bf16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::ops::cuda
