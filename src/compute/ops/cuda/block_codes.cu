// SPDX-License-Identifier: Apache-2.0
#include "ops/block_codes.hpp"
#include "ops/cuda/loops.cuh"

namespace trireme::ops::cuda {
namespace {

constexpr int warps = 4, lane_elements = static_cast<int>(block_elements) / warp_lanes;

/// A warp per block.
template <class Code>
__global__ void encode_kernel(EncodeBlocks call, std::int64_t blocks) {
  const std::int64_t block = row_of_warp();
  if (block >= blocks)
    return;
  const std::int64_t begin = block * block_elements + threadIdx.x;
  float* error = call.error.as_optional<float>();
  auto* codes = call.codes.as<std::uint8_t>();
  float values[lane_elements];
  std::uint32_t largest = 0;
  for (int k = 0; k < lane_elements; ++k) {
    const std::int64_t i = begin + k * warp_lanes;
    values[k] = call.values.as<float>()[i] + (error == nullptr ? 0.0F : error[i]);
    const std::uint32_t size = __float_as_uint(values[k]) & 0x7fffffffU;
    largest = size > largest ? size : largest;
  }
  for (int offset = warp_lanes / 2; offset > 0; offset /= 2) {
    const std::uint32_t other = __shfl_xor_sync(0xffffffffU, largest, offset);
    largest = other > largest ? other : largest;
  }
  const std::uint8_t exponent = scale_of<Code>(largest);
  if (threadIdx.x == 0)
    codes[call.values.elements + block] = exponent;
  for (int k = 0; k < lane_elements; ++k) {
    const std::int64_t i = begin + k * warp_lanes;
    codes[i] = exponent == nan_scale ? 0 : Code::encode(values[k] * inverse_scale_from(exponent));
    if (error != nullptr && exponent != nan_scale)
      error[i] = values[k] - Code::decode(codes[i]) * scale_from(exponent);
  }
}

/// A warp per block, whose lanes have two elements each.
__global__ void encode_largest_kernel(EncodeBlocks call, int kept, std::int64_t blocks) {
  const std::int64_t block = row_of_warp();
  if (block >= blocks)
    return;
  const std::int64_t begin = block * block_elements;
  float* error = call.error.as_optional<float>();
  auto* words = words_of(call.codes) + block * kept;
  float sums[lane_elements];
  std::uint32_t keys[lane_elements];
  for (int k = 0; k < lane_elements; ++k) {
    const std::uint32_t place = threadIdx.x + k * warp_lanes;
    sums[k] =
        call.values.as<float>()[begin + place] + (error == nullptr ? 0.0F : error[begin + place]);
    keys[k] = PlacedValue::key(sums[k], place);
  }
  bool finite = true;
  for (int i = 0; i < kept; ++i) {
    std::uint32_t largest = 0;
    for (const std::uint32_t key : keys) largest = key > largest ? key : largest;
    for (int offset = warp_lanes / 2; offset > 0; offset /= 2) {
      const std::uint32_t other = __shfl_xor_sync(0xffffffffU, largest, offset);
      largest = other > largest ? other : largest;
    }
    finite = finite && is_finite_key(largest);
    for (int k = 0; k < lane_elements; ++k)
      if (keys[k] == largest) {
        words[i] = PlacedValue::encode(sums[k], threadIdx.x + k * warp_lanes);
        sums[k] -= PlacedValue::decode(words[i]);
        keys[k] = 0;
      }
  }
  for (int k = 0; k < lane_elements && error != nullptr && finite; ++k)
    error[begin + threadIdx.x + k * warp_lanes] = sums[k];
}

/// A thread per block.
__global__ void decode_largest_kernel(DecodeBlocks call, int kept, std::int64_t blocks) {
  const std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (block >= blocks)
    return;
  float* sum = call.sum.as<float>() + block * block_elements;
  const auto* words = words_of(call.codes) + block * kept;
  for (int i = 0; i < block_elements && !call.adds; ++i) sum[i] = 0;
  for (int i = 0; i < kept; ++i)
    sum[words[i] & PlacedValue::places] += PlacedValue::decode(words[i]);
}

template <class Code>
struct DecodeLoop {
  DecodeBlocks call;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const auto* codes = call.codes.as<std::uint8_t>();
    const float scale = scale_from(codes[call.sum.elements + i / block_elements]);
    auto pack = load<N>(call.sum.as<float>() + i);
    for (int k = 0; k < N; ++k)
      pack.v[k] = (call.adds ? pack.v[k] : 0.0F) + Code::decode(codes[i + k]) * scale;
    store<N>(call.sum.as<float>() + i, pack);
  }
};

}  // namespace

template <class T>
void run(const Queue& queue, const EncodeBlocks& call) {
  const std::int64_t blocks = call.values.elements / block_elements;
  if (blocks == 0)
    return;
  if (const int kept = kept_values(call.code); kept < block_elements)
    return launch(call.name, encode_largest_kernel, warp_per_row(blocks, warps), queue.stream, call,
                  kept, blocks);
  with_code(call.code, [&](auto code) {
    launch(call.name, encode_kernel<decltype(code)>, warp_per_row(blocks, warps), queue.stream,
           call, blocks);
  });
}

template <class T>
void run(const Queue& queue, const DecodeBlocks& call) {
  const std::int64_t blocks = call.sum.elements / block_elements;
  if (const int kept = kept_values(call.code); kept < block_elements && blocks > 0) {
    constexpr unsigned threads = 128;
    return launch(call.name, decode_largest_kernel,
                  {static_cast<unsigned>(blocks_for(blocks, threads)), threads}, queue.stream, call,
                  kept, blocks);
  }
  with_code(call.code, [&](auto code) {
    loop<4>(call.name, DecodeLoop<decltype(code)>{call}, call.sum.elements, aligned(call.sum),
            queue.stream);
  });
}

template void run<float>(const Queue&, const EncodeBlocks&);
template void run<float>(const Queue&, const DecodeBlocks&);

}  // namespace trireme::ops::cuda
