// SPDX-License-Identifier: Apache-2.0
// Shared by the kernels: fp32 and bf16 elements, packs that are loaded and stored in one access of
// up to 16 bytes, sums over warps and blocks in a fixed order, and loops over long arrays.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "base/dtype.hpp"
#include "base/view.hpp"
#include "device/cuda/launch.cuh"

namespace trireme::ops::cuda {

using device::cuda::launch;
using device::cuda::LaunchShape;
using device::cuda::RawStream;

inline constexpr int warp_lanes = 32;

__device__ inline float to_float(float value) {
  return value;
}
__device__ inline float to_float(Bf16 value) {
  return __uint_as_float(static_cast<std::uint32_t>(value.bits) << 16U);
}

template <class T>
__device__ inline T from_float(float value);
template <>
__device__ inline float from_float<float>(float value) {
  return value;
}
/// Rounds to nearest even, like Bf16(float).
template <>
__device__ inline Bf16 from_float<Bf16>(float value) {
  Bf16 rounded;
  rounded.bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
  return rounded;
}

/// N elements that are read and written together. Aligned to their size, 16 bytes at most.
template <class T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Pack {
  T v[N];
};
template <int N, class T>
__device__ inline Pack<T, N> load(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
template <int N, class T>
__device__ inline void store(T* to, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

/// Elements of T in 16 bytes.
template <class T>
inline constexpr int pack_elements = 16 / static_cast<int>(sizeof(T));

template <class... Pointers>
bool aligned(const Pointers*... pointers) {
  return (((reinterpret_cast<std::uintptr_t>(pointers) % 16) == 0) && ...);
}
/// Whether all non-empty views begin at multiples of 16.
template <bool... Const>
bool aligned(const BasicView<Const>&... views) {
  return ((views.empty() || aligned(views.data)) && ...);
}

/// body.run<N>(i) for the elements [i, i + N) of `count`, N at a time and the rest one by one. A
/// thread handles one pack.
template <int N, class Body>
__global__ void loop_kernel(Body body, std::int64_t count) {
  const std::int64_t begin = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (begin + N <= count)
    body.template run<N>(begin);
  else
    for (std::int64_t i = begin; i < count; ++i) body.template run<1>(i);
}

/// Packs of N when `packed` says that the addresses allow it. Counts stay below 2^31 · 256 packs.
template <int N, class Body>
void loop(const char* name, Body body, std::int64_t count, bool packed, RawStream stream) {
  constexpr int threads = 256;
  if (count == 0)
    return;
  const std::int64_t per_block = static_cast<std::int64_t>(threads) * (packed ? N : 1);
  const auto blocks = static_cast<unsigned>((count + per_block - 1) / per_block);
  launch(name, packed ? loop_kernel<N, Body> : loop_kernel<1, Body>, {blocks, threads}, stream,
         body, count);
}

/// The same sum on every lane; pairs are added in a fixed order.
__device__ inline float warp_sum(float value) {
  for (int offset = warp_lanes / 2; offset > 0; offset /= 2)
    value += __shfl_xor_sync(0xffffffffU, value, offset);
  return value;
}
__device__ inline float warp_max(float value) {
  for (int offset = warp_lanes / 2; offset > 0; offset /= 2)
    value = fmaxf(value, __shfl_xor_sync(0xffffffffU, value, offset));
  return value;
}

/// Over a block of Threads, on every thread. `shared` holds one float per warp, and may be used
/// again after the call.
template <int Threads, class Combine>
__device__ inline float block_combine(float value, float* shared, float neutral, Combine combine) {
  constexpr int warps = Threads / warp_lanes;
  const int lane = static_cast<int>(threadIdx.x) % warp_lanes;
  value = combine(value);
  if (lane == 0)
    shared[threadIdx.x / warp_lanes] = value;
  __syncthreads();
  value = combine(lane < warps ? shared[lane] : neutral);
  __syncthreads();
  return value;
}
template <int Threads>
__device__ inline float block_sum(float value, float* shared) {
  return block_combine<Threads>(value, shared, 0.0F, warp_sum);
}
template <int Threads>
__device__ inline float block_max(float value, float* shared) {
  return block_combine<Threads>(value, shared, -INFINITY, warp_max);
}

/// For any type, by halving; the result is on every thread.
template <int Threads, class T, class Combine>
__device__ inline T block_tree(T value, Combine combine) {
  __shared__ T shared[Threads];
  shared[threadIdx.x] = value;
  __syncthreads();
  for (int half = Threads / 2; half > 0; half /= 2) {
    if (static_cast<int>(threadIdx.x) < half)
      shared[threadIdx.x] = combine(shared[threadIdx.x], shared[threadIdx.x + half]);
    __syncthreads();
  }
  return shared[0];
}

inline std::int64_t blocks_for(std::int64_t count, std::int64_t per_block) {
  return (count + per_block - 1) / per_block;
}

/// A warp for each of `count` rows, some of them in a block.
inline LaunchShape warp_per_row(std::int64_t count, unsigned per_block) {
  return {static_cast<unsigned>(blocks_for(count, per_block)), dim3(warp_lanes, per_block)};
}
/// This warp's row there; rows stay below 2^31 blocks.
__device__ inline std::int64_t row_of_warp() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
}

}  // namespace trireme::ops::cuda
