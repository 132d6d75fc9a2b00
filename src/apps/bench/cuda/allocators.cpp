// SPDX-License-Identifier: Apache-2.0
#include "bench/allocators.hpp"

#include <cuda_runtime_api.h>

#include "device/cuda/check.hpp"
#include "device/cuda/handle.hpp"

namespace trireme::bench {

std::vector<Allocator> cuda_allocators(device::Stream& stream) {
  const cudaStream_t queue = device::cuda::handle_of(stream);
  const auto take = [](std::size_t bytes) {
    void* at = nullptr;
    TRIREME_CUDA(cudaMalloc(&at, bytes));
    return static_cast<std::byte*>(at);
  };
  const auto take_in_order = [queue](std::size_t bytes) {
    void* at = nullptr;
    TRIREME_CUDA(cudaMallocAsync(&at, bytes, queue));
    return static_cast<std::byte*>(at);
  };
  return {{"cudaMalloc", take, [](std::byte* at) { TRIREME_CUDA(cudaFree(at)); }},
          {"cudaMallocAsync", take_in_order,
           [queue](std::byte* at) { TRIREME_CUDA(cudaFreeAsync(at, queue)); }}};
}

}  // namespace trireme::bench
