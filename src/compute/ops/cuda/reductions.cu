// SPDX-License-Identifier: Apache-2.0
// Reductions whose results depend on no order: a minimum of indices, a hash, and integer sums.
//
// The terms of an OrderFreeSum are fp64 values of which each adds at most three parts to
// neighbouring bins of 32 bits (OrderFreeSum::add). A thread has bins of its own in shared memory,
// so nothing there is shared or atomic; at the end the block's threads are added up bin by bin, and
// the block's bins go to the words with integer atomics, whose sums have no order.
#include <algorithm>

#include "base/hash.hpp"
#include "device/cuda/check.hpp"

#include "ops/cuda/pieces.cuh"
#include "ops/cuda/reductions.hpp"
#include "ops/optimizer/order_free_words.hpp"

namespace trireme::ops::cuda {
namespace {

constexpr int finite_blocks = 1024;
constexpr int finite_threads = 256;

/// A block's sum, modulo 2^64.
__device__ inline std::uint64_t block_sum(std::uint64_t value) {
  return block_tree<finite_threads>(value, [](std::uint64_t a, std::uint64_t b) { return a + b; });
}

/// The arrays to be searched; blockIdx.y is the index.
struct Searched {
  Values values[most_searched];
};

/// found[i] becomes the first index in array i, or stays -1, the largest unsigned number. A thread
/// visits increasing indices, so its first hit is its minimum.
template <int N>
__global__ void find_kernel(unsigned long long* found,
                            const __grid_constant__ Searched searched,
                            const GradientNorm* norm) {
  if (norm != nullptr && norm->finite != 0)
    return;
  const float* values = searched.values[blockIdx.y].at;
  const std::int64_t count = searched.values[blockIdx.y].count;
  const auto look = [&](std::int64_t i, float value) {
    const bool bad = (__float_as_uint(value) & 0x7fffffffU) >= 0x7f800000U;
    if (bad)
      atomicMin(found + blockIdx.y, static_cast<unsigned long long>(i));
    return bad;
  };
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * finite_threads + threadIdx.x;
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * finite_threads;
  const std::int64_t packs = count / N;
  for (std::int64_t i = begin; i < packs; i += threads) {
    const auto pack = load<N>(values + i * N);
    for (int k = 0; k < N; ++k)
      if (look(i * N + k, pack.v[k]))
        return;
  }
  if (const std::int64_t i = packs * N + begin; i < count)
    look(i, values[i]);
}

template <class Word>
__global__ void hash_kernel(unsigned long long* hash, const Word* values, std::int64_t count) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * finite_threads;
  std::uint64_t sum = 0;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * finite_threads + threadIdx.x;
       i < count; i += threads)
    sum += element_hash(static_cast<std::uint64_t>(i), values[i]);
  sum = block_sum(sum);
  if (threadIdx.x == 0)
    atomicAdd(hash, static_cast<unsigned long long>(sum));
}

constexpr int sum_threads = 128;
/// Squares of fp32 values are between 2^-298 and 2^256; the lowest bit of a mantissa is worth 2^-52
/// of its value, and the words begin at 2^-1074. The values themselves are in between.
constexpr int first_bin = 22, local_bins = 20;
static_assert((1074 - 298 - 52) / bin_bits >= first_bin);
static_assert((1074 + 255 - 52) / bin_bits + 2 < first_bin + local_bins);

/// Bin i of thread t is bins[i][t].
__device__ inline void add_term(long long (*bins)[sum_threads], double term) {
  const auto raw = static_cast<std::uint64_t>(__double_as_longlong(term));
  const std::uint64_t fraction = raw & ((std::uint64_t{1} << 52U) - 1);
  const auto biased = static_cast<unsigned>(raw >> 52U) & 0x7ffU;
  if (biased == 0)  // no square or value of fp32 is an fp64 subnormal: it is zero
    return;
  const std::uint64_t mantissa = fraction | (std::uint64_t{1} << 52U);
  const unsigned position = biased - 1, shift = position % bin_bits;
  const unsigned bin = position / bin_bits - first_bin;
  // mantissa · 2^shift in three parts of 32 bits.
  const std::uint64_t low = mantissa << shift;
  const std::uint64_t high = shift == 0 ? 0 : mantissa >> (64U - shift);
  const bool negative = (raw >> 63U) != 0;
  const auto put = [&](unsigned i, std::uint64_t part) {
    const auto value = static_cast<long long>(part);
    bins[bin + i][threadIdx.x] += negative ? -value : value;
  };
  put(0, low & 0xffffffffU);
  put(1, low >> 32U);
  put(2, high);
}

struct Summed {
  const float* at;
  std::int64_t count;
  bool packed;  // its address allows packs of 4
};
using SumList = PieceList<Summed, static_cast<int>(most_summed)>;
/// The number of values of an array that a block adds up at a time.
constexpr std::int64_t sum_stretch = 8 * 4 * sum_threads;

/// A block goes through every gridDim.x-th stretch.
template <bool Squared>
__global__ void sum_kernel(std::int64_t* words, const __grid_constant__ SumList list) {
  __shared__ long long bins[local_bins][sum_threads];
  for (int b = 0; b < local_bins; ++b) bins[b][threadIdx.x] = 0;
  int special[3] = {};  // NaN, +inf, -inf
  const auto add = [&](float value) {
    if (isnan(value))
      ++special[0];
    else if (isinf(value))
      ++special[Squared || value > 0 ? 1 : 2];
    else
      add_term(bins, Squared ? static_cast<double>(value) * static_cast<double>(value)
                             : static_cast<double>(value));
  };
  for (auto stretch = static_cast<std::int32_t>(blockIdx.x); stretch < list.blocks;
       stretch += static_cast<std::int32_t>(gridDim.x)) {
    const int which = list.piece_of(stretch);
    const Summed& values = list.pieces[which];
    const std::int64_t begin = (stretch - list.first_block[which]) * sum_stretch;
    const std::int64_t end =
        begin + sum_stretch < values.count ? begin + sum_stretch : values.count;
    const std::int64_t packs_end = values.packed ? begin + (end - begin) / 4 * 4 : begin;
    for (std::int64_t i = begin + threadIdx.x * 4; i < packs_end; i += 4 * sum_threads) {
      const auto pack = load<4>(values.at + i);
      for (const float value : pack.v) add(value);
    }
    for (std::int64_t i = packs_end + threadIdx.x; i < end; i += sum_threads) add(values.at[i]);
  }
  __syncthreads();
  auto* to = reinterpret_cast<unsigned long long*>(words);
  for (int k = 0; k < 3; ++k)
    if (special[k] != 0)
      atomicAdd(to + nan_word + k, static_cast<unsigned long long>(special[k]));
  for (int b = static_cast<int>(threadIdx.x); b < local_bins; b += sum_threads) {
    long long sum = 0;
    // Each bin starts at another thread, because the columns of one thread are in one bank.
    for (int t = 0; t < sum_threads; ++t) sum += bins[b][(t + b) % sum_threads];
    if (sum != 0)
      atomicAdd(to + first_bin + b, static_cast<unsigned long long>(sum));
  }
}

__global__ void carry_kernel(std::int64_t* words) {
  carry_words(words);
}

__global__ void add_words_kernel(std::int64_t* words, const std::int64_t* other) {
  for (unsigned i = threadIdx.x; i < num_words; i += blockDim.x) words[i] += other[i];
}

__global__ void values_kernel(double* values, const std::int64_t* words, std::int64_t count) {
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x)
    values[i] = value_of_words(words + i * num_words);
}

__global__ void norm_kernel(GradientNorm* norm, const double* squares, Clipping clipping) {
  *norm = norm_and_scale(*squares, clipping);
}

}  // namespace

void find_not_finite(std::int64_t* first,
                     std::span<const Values> values,
                     std::byte* workspace,
                     const GradientNorm* norm,
                     RawStream stream) {
  Searched searched{};
  std::int64_t longest = 1;
  bool packed = true;
  for (std::size_t i = 0; i < values.size(); ++i) {
    searched.values[i] = values[i];
    longest = std::max(longest, values[i].count);
    packed = packed && aligned(values[i].at);
  }
  const auto blocks = static_cast<unsigned>(
      std::min<std::int64_t>(blocks_for(longest, finite_threads), finite_blocks));
  const dim3 grid(blocks, static_cast<unsigned>(values.size()));
  auto* found = reinterpret_cast<unsigned long long*>(workspace);
  TRIREME_CUDA(cudaMemsetAsync(found, 0xff, values.size() * sizeof *found, stream));
  launch("find_not_finite", packed ? find_kernel<4> : find_kernel<1>, {grid, finite_threads},
         stream, found, searched, norm);
  TRIREME_CUDA(
      cudaMemcpyAsync(first, found, values.size() * sizeof *found, cudaMemcpyDefault, stream));
}

void hash_elements(std::uint64_t* hash,
                   const std::byte* values,
                   std::size_t width,
                   std::int64_t count,
                   std::byte* workspace,
                   RawStream stream) {
  auto* sum = reinterpret_cast<unsigned long long*>(workspace);
  TRIREME_CUDA(cudaMemsetAsync(sum, 0, sizeof *sum, stream));
  const auto blocks = static_cast<unsigned>(
      std::clamp<std::int64_t>(blocks_for(count, finite_threads), 1, finite_blocks));
  if (width == 2)
    launch("hash_elements", hash_kernel<std::uint16_t>, {blocks, finite_threads}, stream, sum,
           reinterpret_cast<const std::uint16_t*>(values), count);
  else
    launch("hash_elements", hash_kernel<std::uint32_t>, {blocks, finite_threads}, stream, sum,
           reinterpret_cast<const std::uint32_t*>(values), count);
  TRIREME_CUDA(cudaMemcpyAsync(hash, sum, sizeof *sum, cudaMemcpyDefault, stream));
}

void add_to_words(std::int64_t* words,
                  std::span<const Values> values,
                  bool squared,
                  RawStream stream) {
  constexpr std::int32_t most_blocks = 1024;
  SumList list;
  for (const Values& one : values)
    if (one.count > 0)
      list.add({one.at, one.count, aligned(one.at)}, sum_stretch);
  if (list.blocks > 0)
    launch("add_to_words", squared ? sum_kernel<true> : sum_kernel<false>,
           {static_cast<unsigned>(std::min(list.blocks, most_blocks)), sum_threads}, stream, words,
           list);
}

void carry(std::int64_t* words, RawStream stream) {
  launch("carry", carry_kernel, {1, 1}, stream, words);
}

void add_words(std::int64_t* words, const std::int64_t* other, RawStream stream) {
  launch("add_words", add_words_kernel, {1, warp_lanes}, stream, words, other);
}

void values_of_words(double* values,
                     const std::int64_t* words,
                     std::int64_t count,
                     RawStream stream) {
  launch("values_of_words", values_kernel, {1, warp_lanes}, stream, values, words, count);
}

void gradient_norm(GradientNorm* norm,
                   const double* squares,
                   const Clipping& clipping,
                   RawStream stream) {
  launch("gradient_norm", norm_kernel, {1, 1}, stream, norm, squares, clipping);
}

}  // namespace trireme::ops::cuda
