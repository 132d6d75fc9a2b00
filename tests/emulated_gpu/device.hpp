// SPDX-License-Identifier: Apache-2.0
// Properties of the emulated GPUs: like an H100, so that no feature is refused as unsupported.
#pragma once

#include <cstddef>

namespace emulated {

inline constexpr int lowest_priority = 0, highest_priority = -5;
/// Per GPU. Small enough that a test can exceed it.
inline constexpr std::size_t total_bytes = std::size_t{16} << 30U;

/// The current GPU of the calling thread.
int current_gpu();

/// Whether `pointer` is in (or at the end of) memory that the GPU can reach: allocated by
/// cudaMalloc or cudaHostAlloc.
bool reaches(const void* pointer);

}  // namespace emulated
