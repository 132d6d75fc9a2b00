// SPDX-License-Identifier: Apache-2.0
// What the emulated GPUs are: H100-like, so that nothing is refused for being too old.
#pragma once

#include <cstddef>

namespace emulated {

inline constexpr int lowest_priority = 0, highest_priority = -5;
/// Per GPU. Small enough that a test can ask for too much.
inline constexpr std::size_t total_bytes = std::size_t{16} << 30U;

/// The calling thread's.
int current_gpu();

/// Whether `pointer` lies in (or right after) memory that the GPU can reach: cudaMalloc's or
/// cudaHostAlloc's.
bool reaches(const void* pointer);

}  // namespace emulated
