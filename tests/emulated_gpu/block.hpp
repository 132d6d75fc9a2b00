// SPDX-License-Identifier: Apache-2.0
// Runs a kernel's blocks and threads on the host.
//
// Blocks run one after another on the GPU's thread; the threads of a block are fibers on it. A
// thread runs until it ends or has to wait for others at a barrier or a shuffle. Then the seed
// chooses the next thread. So two accesses without a barrier between them may run in either order,
// depending on the seed, in whole stretches between barriers. In some blocks all warps advance
// together; in others one warp runs through its shuffles up to the next barrier before another.
//
// 1. A barrier waits for all threads of the block that have not ended (as from sm_70 on). A shuffle
//    or __syncwarp waits for all lanes of its mask. It is an error if lanes of a warp wait for
//    different things, if a lane takes a value from one that gives none, or if no thread of a
//    block can continue. The process then prints kernel, block and thread, and aborts.
// 2. A launch fails with CUDA's errors if a GPU would refuse the size of its blocks, of its grid or
//    of its dynamic shared memory.
// 3. A pointer argument of a kernel must be null or point into memory that the GPU can reach.
//    Pointers inside structs are not checked.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <type_traits>

#include <cuda_runtime_api.h>

namespace emulated {

inline constexpr int warp_lanes = 32;

// Those of the running thread.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

/// The lane of the running thread in its warp.
unsigned lane();

/// __syncthreads().
void wait_for_block();
/// Waits for the lanes of `mask`, gives them `value`, returns that of lane `source` (-1: none).
std::uint64_t exchange(unsigned mask, std::uint64_t value, int source);

/// The values that each lane of a warp gave.
using Words = std::array<std::uint32_t, 6>;
using Given = std::array<Words, warp_lanes>;
/// Waits for all 32 lanes of the warp. The result is valid until the running thread gives again.
const Given& give_all(const Words& words);

/// 16 bytes that are copied to shared memory when the running thread waits for its copies.
using Copied = std::array<std::uint32_t, 4>;
void copy_at_wait(void* to, const Copied& value);
void wait_for_copies();

/// Enqueues a kernel; `thread` runs one thread of it.
cudaError_t launch(const cudaLaunchConfig_t& config,
                   const void* kernel,
                   std::function<void()> thread);

void check_pointer(const void* kernel, const void* pointer);
template <class T>
void check_argument(const void* kernel, const T& value) {
  if constexpr (std::is_pointer_v<T>)
    check_pointer(kernel, value);
}

}  // namespace emulated
