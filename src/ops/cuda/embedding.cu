// SPDX-License-Identifier: Apache-2.0
// Forward is a look-up per pack. Backward adds up rows of dout that belong to the same token, in
// the order of the rows, so that the bits do not depend on who runs first: the rows are sorted by
// token with a stable radix sort, and a block then adds up one token's rows.
//
// The sort goes through the tokens' digits of 8 bits, lowest first. A slice of 256 rows is the work
// of one block: it counts its digits; the counts are added up over digits and then slices, which
// gives every (digit, slice) its place; and each row goes to that place plus the number of rows of
// its slice before it with the same digit.
#include <utility>

#include "ops/cuda/dropout.cuh"
#include "ops/cuda/embedding.hpp"
#include "ops/cuda/loops.cuh"

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

/// Replaces each count by the sum of those before it. One block.
__global__ void scan_kernel(int* counts, int count) {
  __shared__ int sums[scan_threads];
  const int per_thread = (count + scan_threads - 1) / scan_threads;
  const int begin = static_cast<int>(threadIdx.x) * per_thread;
  const int end = begin + per_thread < count ? begin + per_thread : count;
  int sum = 0;
  for (int i = begin; i < end; ++i) sum += counts[i];
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int offset = 1; offset < scan_threads; offset *= 2) {
    const int before = static_cast<int>(threadIdx.x) >= offset ? sums[threadIdx.x - offset] : 0;
    __syncthreads();
    sums[threadIdx.x] += before;
    __syncthreads();
  }
  int place = sums[threadIdx.x] - sum;
  for (int i = begin; i < end; ++i) {
    const int here = counts[i];
    counts[i] = place;
    place += here;
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
struct Forward {
  T* out;
  const std::int32_t* tokens;
  const T* wte;
  const T* wpe;
  EmbeddingSizes sizes;
  Dropout dropout;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const std::int64_t row = i / sizes.channels, c = i % sizes.channels;
    const std::int64_t position = row % sizes.time;
    const auto a = load<N>(wte + tokens[row] * sizes.channels + c);
    float values[N];
    for (int k = 0; k < N; ++k) values[k] = to_float(a.v[k]);
    if (wpe != nullptr) {
      const auto b = load<N>(wpe + position * sizes.channels + c);
      for (int k = 0; k < N; ++k) values[k] += to_float(b.v[k]);
    }
    if (dropout.active())
      drop<N>(values, dropout, static_cast<std::uint64_t>(row / sizes.time),
              static_cast<std::uint64_t>(position * sizes.channels + c));
    Pack<T, N> pack;
    for (int k = 0; k < N; ++k) pack.v[k] = from_float<T>(values[k]);
    store<N>(out + i, pack);
  }
};

/// N elements of dout after dropout.
template <int N, class T>
__device__ inline void load_dropped(float (&values)[N],
                                    const T* dout,
                                    const EmbeddingSizes& sizes,
                                    const Dropout& dropout,
                                    std::int64_t row,
                                    std::int64_t c) {
  const auto pack = load<N>(dout + row * sizes.channels + c);
  for (int k = 0; k < N; ++k) values[k] = to_float(pack.v[k]);
  if (dropout.active())
    drop<N>(values, dropout, static_cast<std::uint64_t>(row / sizes.time),
            static_cast<std::uint64_t>(row % sizes.time * sizes.channels + c));
}

template <int N>
__device__ inline void add_to(float* to, const float (&sums)[N]) {
  auto pack = load<N>(to);
  for (int k = 0; k < N; ++k) pack.v[k] += sums[k];
  store<N>(to, pack);
}

/// dwpe[i] += the batch's rows at that position, in their order.
template <class T>
struct PositionBackward {
  float* dwpe;
  const T* dout;
  EmbeddingSizes sizes;
  Dropout dropout;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const std::int64_t position = i / sizes.channels, c = i % sizes.channels;
    float sums[N] = {};
    for (std::int64_t b = 0; b < sizes.batch; ++b) {
      float values[N];
      load_dropped<N>(values, dout, sizes, dropout, b * sizes.time + position, c);
      for (int k = 0; k < N; ++k) sums[k] += values[k];
    }
    add_to<N>(dwpe + i, sums);
  }
};

/// The block of the first of a token's rows adds up all of them.
template <int N, class T>
__global__ void token_backward_kernel(float* dwte,
                                      const T* dout,
                                      const std::int32_t* tokens,
                                      const int* sorted,
                                      EmbeddingSizes sizes,
                                      Dropout dropout) {
  const std::int64_t rows = sizes.batch * sizes.time;
  const std::int64_t first = blockIdx.x;
  const std::int32_t token = tokens[sorted[first]];
  if (first > 0 && tokens[sorted[first - 1]] == token)
    return;
  std::int64_t end = first + 1, beyond = rows;  // the first row of a larger token is in between
  while (end < beyond) {
    const std::int64_t middle = (end + beyond) / 2;
    if (tokens[sorted[middle]] == token)
      end = middle + 1;
    else
      beyond = middle;
  }
  for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x) * N; c < sizes.channels;
       c += static_cast<std::int64_t>(blockDim.x) * N) {
    float sums[N] = {};
#pragma unroll 8  // additions stay in order; the reads go ahead of them
    for (std::int64_t at = first; at < end; ++at) {
      float values[N];
      load_dropped<N>(values, dout, sizes, dropout, sorted[at], c);
      for (int k = 0; k < N; ++k) sums[k] += values[k];
    }
    add_to<N>(dwte + token * sizes.channels + c, sums);
  }
}

/// The rows' order by token, in `memory`.
const int* sort_rows(const std::int32_t* tokens,
                     const EmbeddingSizes& sizes,
                     int* memory,
                     RawStream stream) {
  const auto rows = static_cast<int>(sizes.batch * sizes.time);
  const auto slices = static_cast<int>(blocks_for(rows, slice_rows));
  const auto blocks = static_cast<unsigned>(slices);
  int* sorted = memory;
  int* other = memory + rows;
  int* counts = memory + 2 * static_cast<std::int64_t>(rows);
  const int* order = nullptr;  // at first the rows' own
  for (int shift = 0; shift == 0 || (sizes.vocabulary - 1) >> shift > 0; shift += digit_bits) {
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

}  // namespace

template <class T>
void embedding_forward(T* out,
                       const std::int32_t* tokens,
                       const T* wte,
                       const T* wpe,
                       const EmbeddingSizes& sizes,
                       const Dropout& dropout,
                       RawStream stream) {
  loop<pack_elements<T>>("embedding_forward", Forward<T>{out, tokens, wte, wpe, sizes, dropout},
                         sizes.batch * sizes.time * sizes.channels,
                         aligned(out, wte, wpe) && sizes.channels % pack_elements<T> == 0, stream);
}

std::size_t embedding_backward_bytes(std::int64_t tokens) {
  return static_cast<std::size_t>(2 * tokens + digits * blocks_for(tokens, slice_rows)) *
         sizeof(int);
}

template <class T>
void embedding_backward(float* dwte,
                        float* dwpe,
                        const T* dout,
                        const std::int32_t* tokens,
                        const EmbeddingSizes& sizes,
                        const Dropout& dropout,
                        std::byte* workspace,
                        RawStream stream) {
  constexpr int N = pack_elements<T>;
  const bool packed = aligned(dout, dwte, dwpe) && sizes.channels % N == 0;
  if (dwpe != nullptr)
    loop<N>("embedding_backward", PositionBackward<T>{dwpe, dout, sizes, dropout},
            sizes.time * sizes.channels, packed, stream);
  const int* sorted = sort_rows(tokens, sizes, reinterpret_cast<int*>(workspace), stream);
  constexpr unsigned threads = 128;
  const auto blocks = static_cast<unsigned>(sizes.batch * sizes.time);
  launch("embedding_backward", packed ? token_backward_kernel<N, T> : token_backward_kernel<1, T>,
         {blocks, threads}, stream, dwte, dout, tokens, sorted, sizes, dropout);
}

#define TRIREME_INSTANTIATE(T)                                                       \
  template void embedding_forward(T*, const std::int32_t*, const T*, const T*,       \
                                  const EmbeddingSizes&, const Dropout&, RawStream); \
  template void embedding_backward(float*, float*, const T*, const std::int32_t*,    \
                                   const EmbeddingSizes&, const Dropout&, std::byte*, RawStream);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(Bf16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::ops::cuda
