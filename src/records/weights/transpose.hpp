// SPDX-License-Identifier: Apache-2.0
// Transposes a matrix in host memory: GPT-2's files store linear layers as [in, out], we as [out,
// in].
#pragma once

#include <algorithm>
#include <cstdint>

namespace trireme::weights {

/// to[c · to_stride + r] = from[r · from_stride + c], in tiles that fit into the L1 cache.
inline void transpose(const float* from,
                      std::int64_t from_stride,
                      std::int64_t rows,
                      std::int64_t columns,
                      float* to,
                      std::int64_t to_stride) {
  constexpr std::int64_t tile = 32;
  for (std::int64_t r0 = 0; r0 < rows; r0 += tile)
    for (std::int64_t c0 = 0; c0 < columns; c0 += tile)
      for (std::int64_t c = c0; c < std::min(c0 + tile, columns); ++c)
        for (std::int64_t r = r0; r < std::min(r0 + tile, rows); ++r)
          to[c * to_stride + r] = from[r * from_stride + c];
}

}  // namespace trireme::weights
