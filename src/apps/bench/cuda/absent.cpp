// SPDX-License-Identifier: Apache-2.0
// The CUDA part of allocators.hpp in a build without CUDA.
#include "bench/allocators.hpp"

namespace trireme::bench {

std::vector<Allocator> cuda_allocators(device::Stream& /*stream*/) {
  return {};
}

}  // namespace trireme::bench
