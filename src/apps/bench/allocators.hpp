// SPDX-License-Identifier: Apache-2.0
// What memory can be had from besides the pool and Device::allocate: the contestants of `bench
// pool` that each backend brings.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "device/device.hpp"

namespace trireme::bench {

/// `take` returns memory that was not written yet, or throws; `give` takes it back.
struct Allocator {
  const char* name;
  std::function<std::byte*(std::size_t)> take;
  std::function<void(std::byte*)> give;
};

/// cudaMalloc; and cudaMallocAsync, which is CUDA's own pool, in the order of `stream`. The stream
/// must outlive them.
std::vector<Allocator> cuda_allocators(device::Stream& stream);

}  // namespace trireme::bench
