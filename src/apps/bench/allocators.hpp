// SPDX-License-Identifier: Apache-2.0
// Other allocators of a backend, which `bench pool` compares with the pool and Device::allocate.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "device/device.hpp"

namespace trireme::bench {

/// `take` returns memory that was not written yet, or throws; `give` frees it.
struct Allocator {
  const char* name;
  std::function<std::byte*(std::size_t)> take;
  std::function<void(std::byte*)> give;
};

/// cudaMalloc, and cudaMallocAsync (CUDA's own pool) on `stream`, which must outlive them.
std::vector<Allocator> cuda_allocators(device::Stream& stream);

}  // namespace trireme::bench
