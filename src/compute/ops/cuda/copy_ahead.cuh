// SPDX-License-Identifier: Apache-2.0
// Copies from memory to shared memory that continue while the thread does, from sm_80 on. Source:
// PTX ISA, "cp.async". Where the host's compiler reads this, the emulated GPU does the same: what
// is copied is there at the wait, and neither it nor what it overwrites is before.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace trireme::ops::cuda {

/// 16 bytes; addresses are multiples of 16. Writes zeros where `there` is false, and reads nothing.
__device__ inline void copy_ahead(void* to, const void* from, bool there) {
#ifdef __CUDACC__
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(address), "l"(__cvta_generic_to_global(from)), "r"(there ? 16 : 0)
               : "memory");
#else
  emulated::copy_ahead(to, from, there);
#endif
}

/// Until all that this thread has copied is there; other threads see it after a barrier.
__device__ inline void wait_for_copies() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_all;" ::: "memory");
#else
  emulated::wait_for_copies();
#endif
}

}  // namespace trireme::ops::cuda
