// SPDX-License-Identifier: Apache-2.0
// Processes many arrays in one launch: for AdamW and the norm over a bucket's parameters.
//
// The list of arrays is a kernel argument, by value, so nothing has to be copied to the GPU and
// kept there until the kernel has run. CUDA limits arguments to 4 KB, so longer lists take several
// launches. Each array has its own consecutive blocks of the grid, and a block looks up its array.
// A kernel takes the list as `const __grid_constant__`, so that it is read in place, not copied.
#pragma once

#include <cstdint>

#include "ops/cuda/loops.cuh"

namespace trireme::ops::cuda {

/// Room for Most arrays. Piece has `count`, its number of elements.
template <class Piece, int Most>
struct PieceList {
  static constexpr int most = Most;

  Piece pieces[Most];
  std::int32_t first_block[Most];
  std::int32_t size = 0, blocks = 0;

  void add(const Piece& piece, std::int64_t elements_per_block) {
    pieces[size] = piece;
    first_block[size] = blocks;
    ++size;
    blocks += static_cast<std::int32_t>(blocks_for(piece.count, elements_per_block));
  }
  [[nodiscard]] __device__ int piece_of(std::int32_t block) const {
    int low = 0, high = size;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (first_block[middle] <= block)
        low = middle;
      else
        high = middle;
    }
    return low;
  }
};

}  // namespace trireme::ops::cuda
