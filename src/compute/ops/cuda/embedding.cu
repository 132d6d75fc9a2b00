// SPDX-License-Identifier: Apache-2.0
// Forward is a look-up per pack. Backward sums the rows of dout with the same token, in a fixed
// order, so that the bits do not depend on scheduling. The rows are sorted by token with a stable
// radix sort, and cut where a token ends and at every multiple of a stretch of at least 64. A block
// sums the rows between two cuts, in order. If these are all rows of a token, the sum is added to
// its gradient. Otherwise the sums, at most two per stretch, are stored in the workspace until a
// second kernel adds them up, also in order.
//
// The sort goes through the tokens' digits of 8 bits, lowest first. A slice of 256 rows is the work
// of one block: it counts its digits; the counts are added up over digits and then slices, which
// gives every (digit, slice) its place; and each row goes to that place plus the number of rows of
// its slice before it with the same digit.
#include <utility>

#include "ops/cuda/dropout.cuh"
#include "ops/cuda/loops.cuh"
#include "ops/embedding.hpp"

namespace trireme::ops::cuda {
namespace {

constexpr int slice_rows = 256;
constexpr int digits = 256;
constexpr int digit_bits = 8;
constexpr int scan_threads = 1024;

__device__ inline int digit_of(std::int32_t token, int shift) {
  return (token >> shift) & (digits - 1);
}

/// counts[digit][slice].
__global__ void count_kernel(
    int* counts, const std::int32_t* tokens, const int* order, int rows, int slices, int shift) {
  __shared__ int mine[digits];
  mine[threadIdx.x] = 0;
  __syncthreads();
  const int at = static_cast<int>(blockIdx.x) * slice_rows + static_cast<int>(threadIdx.x);
  if (at < rows)
    atomicAdd(&mine[digit_of(tokens[order == nullptr ? at : order[at]], shift)], 1);
  __syncthreads();
  counts[threadIdx.x * slices + blockIdx.x] = mine[threadIdx.x];
}

/// Replaces each count by the sum of those before it. One block. `count` is a multiple of 4.
__global__ void scan_kernel(int* counts, int count) {
  constexpr int N = 4;
  __shared__ int sums[scan_threads];
  const int per_thread = (count / N + scan_threads - 1) / scan_threads * N;
  const int begin = static_cast<int>(threadIdx.x) * per_thread;
  const int end = begin + per_thread < count ? begin + per_thread : count;
  int sum = 0;
#pragma unroll 8
  for (int i = begin; i < end; i += N)
    for (const int here : load<N>(counts + i).v) sum += here;
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int offset = 1; offset < scan_threads; offset *= 2) {
    const int before = static_cast<int>(threadIdx.x) >= offset ? sums[threadIdx.x - offset] : 0;
    __syncthreads();
    sums[threadIdx.x] += before;
    __syncthreads();
  }
  int place = sums[threadIdx.x] - sum;
#pragma unroll 8
  for (int i = begin; i < end; i += N) {
    const auto here = load<N>(counts + i);
    Pack<int, N> places;
    for (int k = 0; k < N; ++k) {
      places.v[k] = place;
      place += here.v[k];
    }
    store<N>(counts + i, places);
  }
}

__global__ void scatter_kernel(int* sorted,
                               const int* places,
                               const std::int32_t* tokens,
                               const int* order,
                               int rows,
                               int slices,
                               int shift) {
  __shared__ int all[slice_rows];
  const int at = static_cast<int>(blockIdx.x) * slice_rows + static_cast<int>(threadIdx.x);
  const bool inside = at < rows;
  const int row = !inside ? 0 : order == nullptr ? at : order[at];
  const int digit = inside ? digit_of(tokens[row], shift) : -1;
  all[threadIdx.x] = digit;
  __syncthreads();
  if (!inside)
    return;
  int before = 0;
  for (int i = 0; i < static_cast<int>(threadIdx.x); ++i) before += all[i] == digit ? 1 : 0;
  sorted[places[digit * slices + static_cast<int>(blockIdx.x)] + before] = row;
}

template <class T>
struct ForwardLoop {
  EmbeddingForward call;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const std::int64_t row = i / call.shape.channels, c = i % call.shape.channels;
    const std::int64_t position =
        call.positions.empty() ? row % call.shape.time : call.positions.as<std::int32_t>()[row];
    const auto a =
        load<N>(call.wte.as<T>() + call.tokens.as<std::int32_t>()[row] * call.shape.channels + c);
    float values[N];
    for (int k = 0; k < N; ++k) values[k] = to_float(a.v[k]);
    if (!call.wpe.empty()) {
      const auto b = load<N>(call.wpe.as<T>() + position * call.shape.channels + c);
      for (int k = 0; k < N; ++k) values[k] += to_float(b.v[k]);
    }
    drop<N>(values, call.dropout, row / call.shape.time, position * call.shape.channels + c);
    Pack<T, N> pack;
    for (int k = 0; k < N; ++k) pack.v[k] = from_float<T>(values[k]);
    store<N>(call.out.as<T>() + i, pack);
  }
};

template <int N, class T>
__device__ inline void load_dropped(float (&values)[N],
                                    const EmbeddingBackward& call,
                                    std::int64_t row,
                                    std::int64_t c) {
  const EmbeddingShape& shape = call.shape;
  const auto pack = load<N>(call.dout.as<T>() + row * shape.channels + c);
  for (int k = 0; k < N; ++k) values[k] = to_float(pack.v[k]);
  drop<N>(values, call.dropout, row / shape.time, row % shape.time * shape.channels + c);
}

template <int N>
__device__ inline void add_to(float* to, const float (&sums)[N]) {
  auto pack = load<N>(to);
  for (int k = 0; k < N; ++k) pack.v[k] += sums[k];
  store<N>(to, pack);
}

/// dwpe[i] += the batch's rows at that position, in their order.
template <class T>
struct PositionLoop {
  EmbeddingBackward call;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const std::int64_t position = i / call.shape.channels, c = i % call.shape.channels;
    float sums[N] = {};
    for (std::int64_t b = 0; b < call.shape.batch; ++b) {
      float values[N];
      load_dropped<N, T>(values, call, b * call.shape.time + position, c);
      for (int k = 0; k < N; ++k) sums[k] += values[k];
    }
    add_to<N>(call.dwpe.as<float>() + i, sums);
  }
};

/// The rows in the order of their tokens.
struct SortedRows {
  const std::int32_t* tokens;
  const int* rows;
  std::int64_t count, stretch;

  [[nodiscard]] __device__ std::int32_t token(std::int64_t at) const { return tokens[rows[at]]; }
  /// Whether the row before it is of another token.
  [[nodiscard]] __device__ bool begins(std::int64_t at) const {
    return at == 0 || token(at - 1) != token(at);
  }
  [[nodiscard]] __device__ std::int64_t end_of_stretch(std::int64_t at) const {
    const std::int64_t end = (at / stretch + 1) * stretch;
    return end < count ? end : count;
  }
};

/// Partial sums of tokens whose rows are in several stretches: [stretches, 2, channels], for the
/// token that begins in the stretch and for the one that continues from before.
__device__ inline float* place_of(float* partial,
                                  std::int64_t stretch,
                                  bool begins,
                                  std::int64_t C) {
  return partial + (2 * stretch + (begins ? 0 : 1)) * C;
}

/// The block of the first row after a cut sums all rows up to the next cut.
template <int N, class T>
__global__ void token_backward_kernel(EmbeddingBackward call, float* partial, SortedRows sorted) {
  const std::int64_t channels = call.shape.channels;
  const std::int64_t first = blockIdx.x;
  const bool begins = sorted.begins(first);
  if (!begins && first % sorted.stretch != 0)
    return;
  const std::int32_t token = sorted.token(first);
  // The first row of a larger token is in between.
  std::int64_t end = first + 1, beyond = sorted.end_of_stretch(first);
  while (end < beyond) {
    const std::int64_t middle = (end + beyond) / 2;
    if (sorted.token(middle) == token)
      end = middle + 1;
    else
      beyond = middle;
  }
  const bool whole = begins && (end == sorted.count || sorted.token(end) != token);
  float* to = whole ? call.dwte.as<float>() + token * channels
                    : place_of(partial, first / sorted.stretch, begins, channels);
  for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x) * N; c < channels;
       c += static_cast<std::int64_t>(blockDim.x) * N) {
    float sums[N] = {};
#pragma unroll 8  // additions stay in order; reads are issued ahead of them
    for (std::int64_t at = first; at < end; ++at) {
      float values[N];
      load_dropped<N, T>(values, call, sorted.rows[at], c);
      for (int k = 0; k < N; ++k) sums[k] += values[k];
    }
    if (whole) {
      add_to<N>(to + c, sums);
    } else {
      Pack<float, N> pack;
      for (int k = 0; k < N; ++k) pack.v[k] = sums[k];
      store<N>(to + c, pack);
    }
  }
}

/// A block per stretch: sums the token that begins in it and continues after it, if any.
template <int N>
__global__ void frequent_token_kernel(float* dwte,
                                      float* partial,
                                      SortedRows sorted,
                                      std::int64_t channels) {
  const std::int64_t stretch = blockIdx.x, first = stretch * sorted.stretch;
  const std::int64_t end = sorted.end_of_stretch(first);
  if (end == sorted.count)
    return;
  const std::int32_t token = sorted.token(end - 1);
  if (sorted.token(end) != token || (first > 0 && sorted.token(first - 1) == token))
    return;
  // The last stretch that begins with the token.
  std::int64_t last = stretch + 1, beyond = (sorted.count + sorted.stretch - 1) / sorted.stretch;
  while (last + 1 < beyond) {
    const std::int64_t middle = (last + beyond) / 2;
    if (sorted.token(middle * sorted.stretch) == token)
      last = middle;
    else
      beyond = middle;
  }
  for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x) * N; c < channels;
       c += static_cast<std::int64_t>(blockDim.x) * N) {
    float sums[N] = {};
#pragma unroll 8  // as above
    for (std::int64_t s = stretch; s <= last; ++s) {
      const auto pack = load<N>(place_of(partial, s, s == stretch, channels) + c);
      for (int k = 0; k < N; ++k) sums[k] += pack.v[k];
    }
    add_to<N>(dwte + token * channels + c, sums);
  }
}

/// The rows' order by token, in `memory`.
const int* sort_rows(const std::int32_t* tokens,
                     const EmbeddingShape& shape,
                     int* memory,
                     RawStream stream) {
  const auto rows = static_cast<int>(shape.batch * shape.time);
  const auto slices = static_cast<int>(blocks_for(rows, slice_rows));
  const auto blocks = static_cast<unsigned>(slices);
  int* counts = memory;  // at the front, where it is aligned for scan_kernel
  int* sorted = counts + digits * slices;
  int* other = sorted + rows;
  const int* order = nullptr;  // at first the rows' own
  for (int shift = 0; shift == 0 || (shape.vocabulary - 1) >> shift > 0; shift += digit_bits) {
    launch("counting tokens", count_kernel, {blocks, digits}, stream, counts, tokens, order, rows,
           slices, shift);
    launch("scanning counts of tokens", scan_kernel, {1, scan_threads}, stream, counts,
           digits * slices);
    launch("scattering tokens", scatter_kernel, {blocks, slice_rows}, stream, sorted, counts,
           tokens, order, rows, slices, shift);
    order = sorted;
    std::swap(sorted, other);
  }
  return order;
}

std::int64_t sort_bytes(std::int64_t tokens) {
  const std::int64_t numbers = 2 * tokens + digits * blocks_for(tokens, slice_rows);
  return blocks_for(numbers * static_cast<std::int64_t>(sizeof(int)), 16) * 16;
}

std::int64_t partial_bytes(std::int64_t tokens, std::int64_t channels, std::int64_t stretch) {
  return 2 * blocks_for(tokens, stretch) * channels * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace

std::size_t embedding_backward_bytes(std::int64_t tokens, std::int64_t channels) {
  return static_cast<std::size_t>(sort_bytes(tokens) + partial_bytes(tokens, channels, tokens));
}

template <class T>
void run(const Queue& queue, const EmbeddingForward& call) {
  constexpr int N = pack_elements<T>;
  const EmbeddingShape& shape = call.shape;
  loop<N>(call.name, ForwardLoop<T>{call}, shape.batch * shape.time * shape.channels,
          aligned(call.out, call.wte, call.wpe) && shape.channels % N == 0, queue.stream);
}

template <class T>
void run(const Queue& queue, const EmbeddingBackward& call) {
  constexpr int N = pack_elements<T>;
  const EmbeddingShape& shape = call.shape;
  const std::int64_t rows = shape.batch * shape.time, for_sort = sort_bytes(rows);
  const bool packed = aligned(call.dout, call.dwte, call.dwpe) && shape.channels % N == 0;
  if (!call.dwpe.empty())
    loop<N>(call.name, PositionLoop<T>{call}, shape.time * shape.channels, packed, queue.stream);
  std::int64_t stretch = 64;
  while (for_sort + partial_bytes(rows, shape.channels, stretch) >
         static_cast<std::int64_t>(queue.workspace_bytes))
    stretch *= 2;
  const SortedRows sorted{call.tokens.as<std::int32_t>(),
                          sort_rows(call.tokens.as<std::int32_t>(), shape,
                                    reinterpret_cast<int*>(queue.workspace), queue.stream),
                          rows, stretch};
  auto* partial = reinterpret_cast<float*>(queue.workspace + for_sort);
  constexpr unsigned threads = 128;
  launch(call.name, packed ? token_backward_kernel<N, T> : token_backward_kernel<1, T>,
         {static_cast<unsigned>(rows), threads}, queue.stream, call, partial, sorted);
  if (rows > stretch)
    launch("embedding_backward of frequent tokens",
           packed ? frequent_token_kernel<N> : frequent_token_kernel<1>,
           {static_cast<unsigned>(blocks_for(rows, stretch)), threads}, queue.stream,
           call.dwte.as<float>(), partial, sorted, shape.channels);
}

TRIREME_CUDA_BODIES(EmbeddingForward);
TRIREME_CUDA_BODIES(EmbeddingBackward);

}  // namespace trireme::ops::cuda
