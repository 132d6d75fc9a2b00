// SPDX-License-Identifier: Apache-2.0
// How a kernel's blocks and threads run on the host.
//
// Blocks run one after another on the GPU's thread; a block's threads are fibers on it. A thread
// runs until it has to wait for others, at a barrier or a shuffle, or ends; then the seed chooses
// who goes on. So of two accesses with no barrier between them either may come first, by seed, in
// whole stretches between barriers. In some blocks all warps keep abreast; in others one runs ahead
// through its shuffles, as far as the next barrier, before another moves.
//
// 1. A barrier waits for all threads of the block that have not ended (as from sm_70 on); a shuffle
//    or __syncwarp for all of its mask's. Lanes of a warp that wait for different things, and a
//    lane that takes a value from one that gives none, are errors, as is a block in which no thread
//    can go on: printed with kernel, block and thread, and the process aborts.
// 2. A launch is refused with CUDA's errors when a GPU would refuse it: size of blocks and grids,
//    dynamic shared memory.
// 3. A pointer among the kernel's arguments must be null or point into memory that the GPU can
// reach; pointers inside of structs are not seen.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <type_traits>

#include <cuda_runtime_api.h>

namespace emulated {

inline constexpr int warp_lanes = 32;

// Of the running thread.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

/// The running thread's place in its warp.
unsigned lane();

/// __syncthreads().
void wait_for_block();
/// Waits for the lanes of `mask`, gives them `value`, and takes that of lane `source` (-1: none).
std::uint64_t exchange(unsigned mask, std::uint64_t value, int source);

/// What each lane of a warp gave.
using Words = std::array<std::uint32_t, 6>;
using Given = std::array<Words, warp_lanes>;
/// Waits for all 32 lanes of the warp. What they gave stays until the running thread gives again.
const Given& give_all(const Words& words);

/// 16 bytes that come to shared memory when the running thread waits for its copies.
using Copied = std::array<std::uint32_t, 4>;
void copy_at_wait(void* to, const Copied& value);
void wait_for_copies();

/// Enqueues a kernel, of which `thread` is one thread.
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
