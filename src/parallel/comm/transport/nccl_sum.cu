// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <cuda_bf16.h>

#include "device/cuda/launch.cuh"

#include "comm/transport/nccl_sum.hpp"

namespace trireme::comm {
namespace {

constexpr unsigned threads = 256;
constexpr std::int64_t most_blocks = 4096;

/// Memory-bound and short compared with the transfers: one element per thread and iteration.
__global__ void sum_bf16(__nv_bfloat16* own,
                         const __nv_bfloat16* others,
                         std::int64_t stride,
                         std::int64_t count,
                         int rank,
                         int ranks) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    float sum = 0;
    for (int r = 0; r < ranks; ++r) {
      const float term = __bfloat162float(r == rank ? own[i] : others[r * stride + i]);
      sum = r == 0 ? term : sum + term;
    }
    own[i] = __float2bfloat16(sum);
  }
}

}  // namespace

void sum_bf16_terms(Bf16* own,
                    const Bf16* others,
                    std::int64_t stride,
                    std::int64_t count,
                    int rank,
                    int ranks,
                    device::cuda::RawStream stream) {
  if (count == 0)
    return;
  const auto blocks = static_cast<unsigned>(std::min((count + threads - 1) / threads, most_blocks));
  device::cuda::launch("sum_bf16", sum_bf16, {dim3(blocks), dim3(threads)}, stream,
                       reinterpret_cast<__nv_bfloat16*>(own),
                       reinterpret_cast<const __nv_bfloat16*>(others), stride, count, rank, ranks);
}

}  // namespace trireme::comm
