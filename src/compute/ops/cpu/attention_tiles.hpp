// SPDX-License-Identifier: Apache-2.0
// Operations of attention on tiles of 64 queries by 64 keys, in fp32, in scratch that a thread
// owns: loading and storing tiles, and the softmax of a tile of scores against the running maximum
// and sum of its rows (Dao et al. 2022, algorithm 1). Attention of whole sequences (attention.cpp)
// and of single positions (cached_attention.cpp) use them, so both have the same bits.
//
// Layouts: queries and values are stored as [tile, width] with rows of whole registers, keys as
// [channels, tile], so that the product for a tile of scores reads 64 keys of one channel side by
// side. Scores are [tile, tile]: rows are queries, columns are keys.
// 1. Softmax in tiles: with m and l the maximum and the sum of exponentials of what a row has seen,
//    a new tile multiplies the row's sums by exp(m_old - m_new). At the end the sums are divided by
//    l, and lse = m + log(l).
// 2. bf16 is widened to fp32 when it is loaded and rounded once when it is stored.
// 3. Columns after the last valid one are zero up to where products read, at most 16 further: a
//    product over whole registers then adds zeros.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "ops/cpu/attention_head.hpp"
#include "ops/cpu/dropout.hpp"
#include "ops/cpu/products.hpp"

namespace trireme::ops::cpu {

// A row of a tile draws its dropout factors in one run.
static_assert(tile <= dropout_run_elements);

/// Hides the scores of keys that a query does not see. The score that replaces them is finite: a
/// row that sees nothing of its first tile accumulates finite numbers there, and the first score
/// that it sees, at the latest its own, scales them to 0.
TRIREME_INLINE void hide_unseen(float* scores,
                                std::int64_t rows,
                                std::int64_t first_query,
                                std::int64_t key,
                                const AttentionHead& head) {
  constexpr float hidden = -1e30F;
  if (head.first_key(first_query + rows - 1) <= key)
    return;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t count = std::min(tile, head.first_key(first_query + r) - key);
    for (std::int64_t c = 0; c < count; ++c) scores[r * tile + c] = hidden;
  }
}

/// The tiles that one thread works on, one after the other in its scratch.
struct AttentionScratch {
  float *q, *k, *v, *scores, *sums;  // [tile, width], [channels, tile], [tile, width], [tile,
                                     // tile], [tile, width]
  [[nodiscard]] static std::int64_t elements(std::int64_t width) {
    return 4 * tile * width + tile * tile;
  }
  AttentionScratch(float* at, std::int64_t width)
      : q(at),
        k(q + tile * width),
        v(k + tile * width),
        scores(v + tile * width),
        sums(scores + tile * tile) {}
};

/// The part of a square tile of scores (rows are queries, columns are keys) that causality leaves,
/// as the product that uses the tile sees it.
enum class Triangle : std::uint8_t {
  none,            ///< every element counts
  result,          ///< columns beyond the row block are not computed
  depth_to_row,    ///< A is lower triangular: the depth ends with the row block
  depth_from_row,  ///< transposed A is lower triangular: the depth starts with the row block
};

/// A tile in scratch; its rows are `stride` elements apart.
struct TileOperand {
  const float* data;
  std::int64_t stride;
};

}  // namespace trireme::ops::cpu

#define TRIREME_KERNELS "ops/cpu/attention_tile_kernels.hpp"
#include "ops/cpu/for_each_level.hpp"
#define TRIREME_KERNELS "ops/cpu/tile_product_kernels.hpp"
#include "ops/cpu/for_each_level.hpp"
