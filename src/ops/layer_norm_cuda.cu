// SPDX-License-Identifier: Apache-2.0
// A warp per row, eight rows per block: each lane goes through its packs of the row. Rows are some
// kilobytes long, so the second and third pass over one find it in a cache.
#include "ops/cuda_columns.cuh"
#include "ops/cuda_loops.cuh"
#include "ops/dropout_cuda.cuh"
#include "ops/layer_norm_cuda.hpp"

namespace trireme::ops::cuda {
namespace {

constexpr float epsilon = 1e-5F;
constexpr int rows_per_block = 8;

/// This warp's row; rows stay below 2^31 blocks of 8.
__device__ inline std::int64_t row_of_warp() {
  return static_cast<std::int64_t>(blockIdx.x) * rows_per_block + threadIdx.y;
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
                               std::int64_t channels) {
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
  const float m = warp_sum(sum) * inverse;
  const T* from = input.normalized() + row * channels;  // a lane reads what it has stored itself
  float squares = 0;
  for (std::int64_t c = first; c < channels; c += step) {
    const auto pack = load<N>(from + c);
    for (const T value : pack.v) squares += (to_float(value) - m) * (to_float(value) - m);
  }
  const float s = 1.0F / sqrtf(warp_sum(squares) * inverse + epsilon);
  if (threadIdx.x == 0) {
    mean[row] = m;
    rstd[row] = s;
  }
  for (std::int64_t c = first; c < channels; c += step) {
    auto pack = load<N>(from + c);
    const auto scale = load<N>(gamma + c);
    Pack<T, N> shift{};
    if (beta != nullptr)
      shift = load<N>(beta + c);
    for (int k = 0; k < N; ++k)
      pack.v[k] = from_float<T>((to_float(pack.v[k]) - m) * s * to_float(scale.v[k]) +
                                to_float(shift.v[k]));
    store<N>(y + row * channels + c, pack);
  }
}

/// dx = rstd (g - mean(g) - xhat mean(g xhat)) with g = dy gamma, xhat = (x - mean) rstd.
template <int N, class T>
__global__ void backward_kernel(
    T* dx, LayerNormSaved<T> saved, std::int64_t rows, std::int64_t channels, bool accumulate) {
  const std::int64_t row = row_of_warp();
  if (row >= rows)
    return;
  const T* dy = saved.dy + row * channels;
  const T* x = saved.x + row * channels;
  const float m = saved.mean[row], s = saved.rstd[row];
  const auto first = static_cast<std::int64_t>(threadIdx.x) * N;
  constexpr std::int64_t step = warp_lanes * N;
  float sum = 0, product = 0;
  for (std::int64_t c = first; c < channels; c += step) {
    const auto d = load<N>(dy + c), at = load<N>(x + c), scale = load<N>(saved.gamma + c);
    for (int k = 0; k < N; ++k) {
      const float g = to_float(d.v[k]) * to_float(scale.v[k]);
      sum += g;
      product += g * ((to_float(at.v[k]) - m) * s);
    }
  }
  const float inverse = 1.0F / static_cast<float>(channels);
  sum = warp_sum(sum) * inverse;
  product = warp_sum(product) * inverse;
  for (std::int64_t c = first; c < channels; c += step) {
    const auto d = load<N>(dy + c), at = load<N>(x + c), scale = load<N>(saved.gamma + c);
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
    const float m = saved.mean[row], s = saved.rstd[row];
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
                        RawStream stream) {
  if (rows == 0)
    return;
  constexpr int N = pack_elements<T>;
  // What is null counts as aligned.
  const bool packed =
      channels % N == 0 && aligned(y, input.x, input.branch, input.sum, gamma, beta);
  launch("layer_norm_forward", packed ? forward_kernel<N, T> : forward_kernel<1, T>,
         shape_of_rows(rows), stream, y, mean, rstd, input, gamma, beta, rows, channels);
}

template <class T>
void layer_norm_backward(T* dx,
                         float* dgamma,
                         float* dbeta,
                         const LayerNormSaved<T>& saved,
                         std::int64_t rows,
                         std::int64_t channels,
                         bool accumulate,
                         RawStream stream) {
  if (rows == 0)
    return;
  constexpr int N = pack_elements<T>;
  const bool packed = channels % N == 0 && aligned(dx, saved.dy, saved.x, saved.gamma);
  float* const to[2] = {dgamma, dbeta};
  add_column_sums<2, N>("layer_norm_backward", GradientTerms<T>{saved, channels}, to, rows,
                        channels, packed, saved.workspace, saved.workspace_bytes, stream);
  launch("layer_norm_backward", packed ? backward_kernel<N, T> : backward_kernel<1, T>,
         shape_of_rows(rows), stream, dx, saved, rows, channels, accumulate);
}

#define TRIREME_INSTANTIATE(T)                                                                  \
  template void layer_norm_forward(T*, float*, float*, const LayerNormInput<T>&, const T*,      \
                                   const T*, std::int64_t, std::int64_t, RawStream);            \
  template void layer_norm_backward(T*, float*, float*, const LayerNormSaved<T>&, std::int64_t, \
                                    std::int64_t, bool, RawStream);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(Bf16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::ops::cuda
