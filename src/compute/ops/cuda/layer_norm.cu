// SPDX-License-Identifier: Apache-2.0
// A warp per row, eight rows per block. The forward pass holds a row in registers: all its loads
// are in flight at the same time, and it is read once. Rows of more than most_packs packs per lane
// are read again for each pass, from a cache.
#include "ops/cuda/columns.cuh"
#include "ops/cuda/dropout.cuh"
#include "ops/cuda/loops.cuh"
#include "ops/elementwise.hpp"
#include "ops/layer_norm.hpp"

namespace trireme::ops::cuda {
namespace {

constexpr int rows_per_block = 8;

/// Rows that a block has in work at a time, and its threads at most.
constexpr int rows_at_once = 2;
constexpr int most_slice_threads = 512;
/// Number of blocks of `threads` that an H200 runs at a time, limited by registers. Other GPUs use
/// the same number, so that the order of the sums is the same.
std::int64_t slices_at_once(std::int64_t threads) {
  constexpr std::int64_t multiprocessors = 132;
  return multiprocessors * (most_slice_threads / threads);
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

/// N elements of the sum that is normalized, from channel c on; stores them.
template <int N, class T>
__device__ inline Pack<T, N> add_branch(const LayerNormForward& call,
                                        std::int64_t row,
                                        std::int64_t c,
                                        Pack<T, N> pack,
                                        const Pack<T, N>& branch) {
  const std::int64_t at = row * call.channels + c;
  float values[N];
  for (int k = 0; k < N; ++k) values[k] = to_float(branch.v[k]);
  drop<N>(values, call.dropout, row / call.rows_per_sample,
          row % call.rows_per_sample * call.channels + c);
  for (int k = 0; k < N; ++k) pack.v[k] = from_float<T>(values[k] + to_float(pack.v[k]));
  store<N>(call.sum.as<T>() + at, pack);
  return pack;
}

/// A lane's part of a row: in registers as `packs` packs, of which the last may be beyond the row's
/// end, or, where `packs` is 0, read again for each pass.
template <int N, class T, int packs>
struct Row {
  const LayerNormForward& call;
  std::int64_t row;
  Pack<T, N> held[packs == 0 ? 1 : packs];

  __device__ Row(const LayerNormForward& of, std::int64_t at) : call(of), row(at) {}

  template <class Body>
  __device__ void first_pass(Body body) {
    const auto take = [&](const T* from, std::int64_t c) {
      return load<N>(from + row * call.channels + c);
    };
    if constexpr (packs == 0) {
      for_each([&](int /*p*/, std::int64_t c) {
        auto pack = take(call.x.as<T>(), c);
        if (!call.branch.empty())
          pack = add_branch<N>(call, row, c, pack, take(call.branch.as<T>(), c));
        body(c, pack);
      });
    } else {
      for_each([&](int p, std::int64_t c) { held[p] = take(call.x.as<T>(), c); });
      if (!call.branch.empty()) {
        Pack<T, N> branch[packs];
        for_each([&](int p, std::int64_t c) { branch[p] = take(call.branch.as<T>(), c); });
        for_each([&](int p, std::int64_t c) {
          held[p] = add_branch<N>(call, row, c, held[p], branch[p]);
        });
      }
      next_pass(body);
    }
  }
  /// From memory, a lane only reads what it has stored itself.
  template <class Body>
  __device__ void next_pass(Body body) {
    for_each([&](int p, std::int64_t c) {
      if constexpr (packs == 0)
        body(c, load<N>(call.normalized<T>() + row * call.channels + c));
      else
        body(c, held[p]);
    });
  }

 private:
  template <class Body>
  __device__ void for_each(Body body) {
    if constexpr (packs == 0) {
      for (auto c = static_cast<std::int64_t>(threadIdx.x) * N; c < call.channels;
           c += warp_lanes * N)
        body(0, c);
    } else {
#pragma unroll
      for (int p = 0; p < packs; ++p)
        if (const std::int64_t c = (p * warp_lanes + static_cast<int>(threadIdx.x)) * N;
            c < call.channels)
          body(p, c);
    }
  }
};

/// `packs` of a lane are held in registers; 0: the row is read from memory.
template <int N, int packs, class T>
__global__ void forward_kernel(LayerNormForward call) {
  const std::int64_t row = row_of_warp(), channels = call.channels;
  if (row >= call.rows())
    return;
  Row<N, T, packs> values(call, row);
  float sum = 0;
  values.first_pass([&](std::int64_t /*c*/, const Pack<T, N>& pack) {
    for (const T value : pack.v) sum += to_float(value);
  });
  const float inverse = 1.0F / static_cast<float>(channels);
  const float m = call.centers() ? warp_sum(sum) * inverse : 0.0F;
  float squares = 0;
  values.next_pass([&](std::int64_t /*c*/, const Pack<T, N>& pack) {
    for (const T value : pack.v) squares += (to_float(value) - m) * (to_float(value) - m);
  });
  const float s = 1.0F / sqrtf(warp_sum(squares) * inverse + call.epsilon);
  if (threadIdx.x == 0) {
    if (call.centers())
      call.mean.as<float>()[row] = m;
    call.rstd.as<float>()[row] = s;
  }
  values.next_pass([&](std::int64_t c, Pack<T, N> pack) {
    const auto scale = gains_at<N>(call.gamma.as_optional<T>(), c);
    Pack<T, N> shift{};
    if (!call.beta.empty())
      shift = load<N>(call.beta.as<T>() + c);
    for (int k = 0; k < N; ++k)
      pack.v[k] = from_float<T>((to_float(pack.v[k]) - m) * s * to_float(scale.v[k]) +
                                to_float(shift.v[k]));
    store<N>(call.y.as<T>() + row * channels + c, pack);
  });
}

constexpr int most_packs = 8;

/// The kernel for rows of `packs` packs per lane.
template <int N, class T, int packs = most_packs>
auto forward_kernel_of(std::int64_t wanted) -> void (*)(LayerNormForward) {
  if constexpr (packs == 0)
    return forward_kernel<N, 0, T>;
  else
    return wanted == packs ? forward_kernel<N, packs, T>
                           : forward_kernel_of<N, T, packs - 1>(wanted);
}

/// dx = rstd (g - mean(g) - xhat mean(g xhat)) with g = dy gamma, xhat = (x - mean) rstd. Without
/// means, both mean and mean(g) are omitted. A block goes through its slice of the rows, some at a
/// time, and a thread owns N channels: what it reads of a row serves dx and its channels' sums.
template <int N, class T>
struct BackwardSlice {
  const LayerNormBackward& call;
  std::int64_t c;
  bool inside;  // a thread outside reads channel 0, and adds nothing
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
      const std::int64_t at = (first + r) * call.channels + c;
      dy[r] = load<N>(call.dy.as<T>() + at);
      x[r] = load<N>(call.x.as<T>() + at);
      if (call.accumulate)
        before[r] = load<N>(call.dx.as<T>() + at);
      mean[r] = call.mean_of(first + r);
      rstd[r] = call.rstd.as<float>()[first + r];
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
    const float inverse = 1.0F / static_cast<float>(call.channels);
    for (int r = 0; r < R; ++r) {
      const float sum = call.centers() ? totals[2 * r] * inverse : 0.0F;
      const float product = totals[2 * r + 1] * inverse;
      Pack<T, N> made;
      for (int k = 0; k < N; ++k) {
        const float g = to_float(dy[r].v[k]) * to_float(gamma.v[k]);
        const float xhat = (to_float(x[r].v[k]) - mean[r]) * rstd[r];
        made.v[k] = from_float<T>(to_float(before[r].v[k]) + rstd[r] * (g - sum - xhat * product));
        dbias[k] += to_float(made.v[k]);
      }
      store<N>(call.dx.as<T>() + (first + r) * call.channels + c, made);
    }
  }
};

/// partial = [slices][3][channels]: the sums of dgamma, dbeta and dbias.
template <int N, class T>
__global__ __launch_bounds__(most_slice_threads) void backward_slices_kernel(
    LayerNormBackward call, float* partial, std::int64_t rows_per_slice) {
  // Two alternating buffers, so that one barrier per iteration suffices.
  __shared__ float shared[2][rows_at_once * 2 * most_slice_threads / warp_lanes];
  const std::int64_t own = static_cast<std::int64_t>(threadIdx.x) * N;
  const std::int64_t channels = call.channels;
  const bool inside = own < channels;
  BackwardSlice<N, T> slice{call, inside ? own : 0, inside};
  if (inside)
    slice.gamma = gains_at<N>(call.gamma.as_optional<T>(), own);
  std::int64_t row = blockIdx.x * rows_per_slice;
  const std::int64_t end = row + rows_per_slice < call.rows() ? row + rows_per_slice : call.rows();
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

/// dx for rows that are too long for that kernel, in a separate pass.
template <int N, class T>
__global__ void backward_kernel(LayerNormBackward call) {
  const std::int64_t row = row_of_warp(), channels = call.channels;
  if (row >= call.rows())
    return;
  const T* dy = call.dy.as<T>() + row * channels;
  const T* x = call.x.as<T>() + row * channels;
  const float m = call.mean_of(row), s = call.rstd.as<float>()[row];
  const auto first = static_cast<std::int64_t>(threadIdx.x) * N;
  constexpr std::int64_t step = warp_lanes * N;
  float sum = 0, product = 0;
  for (std::int64_t c = first; c < channels; c += step) {
    const auto d = load<N>(dy + c), at = load<N>(x + c),
               scale = gains_at<N>(call.gamma.as_optional<T>(), c);
    for (int k = 0; k < N; ++k) {
      const float g = to_float(d.v[k]) * to_float(scale.v[k]);
      sum += g;
      product += g * ((to_float(at.v[k]) - m) * s);
    }
  }
  const float inverse = 1.0F / static_cast<float>(channels);
  sum = call.centers() ? warp_sum(sum) * inverse : 0.0F;
  product = warp_sum(product) * inverse;
  for (std::int64_t c = first; c < channels; c += step) {
    const auto d = load<N>(dy + c), at = load<N>(x + c),
               scale = gains_at<N>(call.gamma.as_optional<T>(), c);
    T* to = call.dx.as<T>() + row * channels + c;
    Pack<T, N> pack{};
    if (call.accumulate)
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
  LayerNormBackward call;
  template <int N>
  __device__ void add(float (&sums)[2][N], std::int64_t row, std::int64_t column) const {
    const auto d = load<N>(call.dy.as<T>() + row * call.channels + column);
    const auto at = load<N>(call.x.as<T>() + row * call.channels + column);
    const float m = call.mean_of(row), s = call.rstd.as<float>()[row];
    for (int k = 0; k < N; ++k) {
      sums[0][k] += to_float(d.v[k]) * ((to_float(at.v[k]) - m) * s);
      sums[1][k] += to_float(d.v[k]);
    }
  }
};

}  // namespace

template <class T>
void run(const Queue& queue, const LayerNormForward& call) {
  if (call.rows() == 0)
    return;
  constexpr int N = pack_elements<T>;
  const bool packed = call.channels % N == 0 &&
                      aligned(call.y, call.x, call.branch, call.sum, call.gamma, call.beta);
  launch(call.name,
         packed ? forward_kernel_of<N, T>(blocks_for(call.channels, N * warp_lanes))
                : forward_kernel<1, 0, T>,
         warp_per_row(call.rows(), rows_per_block), queue.stream, call);
}

template <class T>
void run(const Queue& queue, const LayerNormBackward& call) {
  if (call.rows() == 0)
    return;
  constexpr int N = pack_elements<T>;
  const std::int64_t rows = call.rows(), channels = call.channels;
  const bool packed = channels % N == 0 && aligned(call.dx, call.dy, call.x, call.gamma);
  if (const std::int64_t threads = blocks_for(channels, (packed ? N : 1) * warp_lanes) * warp_lanes;
      threads <= most_slice_threads) {
    const auto room = static_cast<std::int64_t>(queue.workspace_bytes / sizeof(float));
    std::int64_t slices =
        std::min({blocks_for(rows, rows_at_once), slices_at_once(threads), room / (3 * channels)});
    const std::int64_t rows_per_slice =
        blocks_for(blocks_for(rows, slices), rows_at_once) * rows_at_once;
    slices = blocks_for(rows, rows_per_slice);
    auto* partial = reinterpret_cast<float*>(queue.workspace);
    launch(call.name, packed ? backward_slices_kernel<N, T> : backward_slices_kernel<1, T>,
           {static_cast<unsigned>(slices), static_cast<unsigned>(threads)}, queue.stream, call,
           partial, rows_per_slice);
    add_column_totals<3>(call.name,
                         {call.dgamma.as_optional<float>(), call.dbeta.as_optional<float>(),
                          call.dbias.as_optional<float>()},
                         partial, slices, channels, queue.stream);
    return;
  }
  add_column_sums<2, N>(call.name, GradientTerms<T>{call},
                        {call.dgamma.as_optional<float>(), call.dbeta.as_optional<float>()}, rows,
                        channels, packed, queue);
  launch(call.name, packed ? backward_kernel<N, T> : backward_kernel<1, T>,
         warp_per_row(rows, rows_per_block), queue.stream, call);
  if (!call.dbias.empty())
    run<T>(queue, BiasBackward{.db = call.dbias, .dy = call.dx});
}

TRIREME_CUDA_BODIES(LayerNormForward);
TRIREME_CUDA_BODIES(LayerNormBackward);

}  // namespace trireme::ops::cuda
