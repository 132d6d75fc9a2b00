// SPDX-License-Identifier: Apache-2.0
// Operations of attention on tiles of 64 queries by 64 keys, in fp32, in scratch that a thread
// owns: loading and storing tiles, and the softmax of a tile of scores against the running maximum
// and sum of its rows (Dao et al. 2022, algorithm 1). Attention of whole sequences (attention.cpp)
// and of single positions (cached_attention.cpp) use them, so both have the same bits.
//
// Layouts: queries and values are stored as [tile, width] with rows of whole registers, keys as
// [channels, tile], so that the product for a tile of scores reads 64 keys of one channel side by
// side. Scores are [tile, tile]: rows are queries, columns are keys.
//
// 1. Softmax in tiles: with m and l the maximum and the sum of exponentials of what a row has seen,
//    a new tile multiplies the row's sums by exp(m_old - m_new). At the end the sums are divided by
//    l, and lse = m + log(l).
// 2. bf16 is widened to fp32 when it is loaded and rounded once when it is stored.
// 3. Columns after the last valid one are zero up to where products read, at most 16 further: a
//    product over whole registers then adds zeros.
// 4. Each function has a body for AVX-512 and a portable one. `level`, that of the calling kernel,
//    selects one.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "ops/cpu/attention_head.hpp"
#include "ops/cpu/dropout.hpp"
#include "ops/cpu/loops.hpp"
#include "ops/cpu/tile_product.hpp"
#if defined(__x86_64__)
#include "ops/cpu/x86/avx512_attention.hpp"
#endif

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

/// to = [tile, width] from rows of `channels`; what is missing is zero.
template <Level level, class T>
TRIREME_INLINE void load_rows(float* to,
                              const T* from,
                              std::int64_t stride,
                              std::int64_t rows,
                              const AttentionHead& head,
                              float scale) {
#if defined(__x86_64__)
  if constexpr (level == Level::avx512) {
    avx512::load_tile<tile>(to, head.width, from, stride, rows, head.channels, scale);
    return;
  }
#endif
  for (std::int64_t r = 0; r < rows; ++r) {
    float* line = to + r * head.width;
#pragma omp simd
    for (std::int64_t c = 0; c < head.channels; ++c)
      line[c] = to_float(from[r * stride + c]) * scale;
    for (std::int64_t c = head.channels; c < head.width; ++c) line[c] = 0;
  }
  std::fill(to + rows * head.width, to + tile * head.width, 0.0F);
}

/// to = [channels, tile] from rows of `channels`; columns of missing rows are zero.
template <Level level, class T>
TRIREME_INLINE void load_transposed(
    float* to, const T* from, std::int64_t stride, std::int64_t rows, const AttentionHead& head) {
#if defined(__x86_64__)
  if constexpr (level == Level::avx512) {
    avx512::load_transposed_tile<tile>(to, from, stride, rows, head.channels);
    return;
  }
#endif
  for (std::int64_t c = 0; c < head.channels; ++c) {
    float* line = to + c * tile;
    for (std::int64_t r = 0; r < rows; ++r) line[r] = to_float(from[r * stride + c]);
    for (std::int64_t r = rows; r < tile; ++r) line[r] = 0;
  }
}

/// Rows of `channels`, `stride` apart, from [tile, width], each element times `scale`.
template <Level level, class T>
TRIREME_INLINE void store_rows(T* to,
                               std::int64_t stride,
                               const float* from,
                               std::int64_t rows,
                               const AttentionHead& head,
                               float scale) {
#if defined(__x86_64__)
  if constexpr (level == Level::avx512) {
    avx512::store_tile(to, stride, from, head.width, rows, head.channels, scale);
    return;
  }
#endif
  for (std::int64_t r = 0; r < rows; ++r) {
#pragma omp simd
    for (std::int64_t c = 0; c < head.channels; ++c)
      to[r * stride + c] = from_float<T>(from[r * head.width + c] * scale);
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

/// Softmax of one tile of scores against the rows' running maximum and sum; leaves the (dropped)
/// probabilities in `scores` and rescales what the rows have gathered. The rows are those from
/// `query` + `before` on, of the tile of queries that begins at `query`.
template <Level level>
TRIREME_INLINE void softmax_tile(const AttentionScratch& s,
                                 float* maximum,
                                 float* total,
                                 std::int64_t rows,
                                 std::int64_t query,
                                 std::int64_t key,
                                 const AttentionHead& head,
                                 const Dropout& dropout,
                                 std::int64_t before = 0) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  DropoutRun run;
#if defined(__x86_64__)
  if constexpr (level == Level::avx512) {
    alignas(64) std::array<float, tile> shrink;
    avx512::softmax_rows(s.scores, maximum, total, shrink.data(), rows, query == key, before);
    if (key > 0)
      avx512::scale_rows(s.sums, head.width, shrink.data(), rows);
    for (std::int64_t r = 0; r < rows && dropout.active(); ++r) {
      float* line = s.scores + r * tile;
      const std::int64_t valid = query == key ? before + r + 1 : tile;
      const float* factors =
          dropout_run(run, dropout, head.sample,
                      head.first_element + (query + before + r) * head.time + key, valid);
#pragma omp simd
      for (std::int64_t c = 0; c < valid; ++c) line[c] *= factors[c];
    }
    return;
  }
#endif
  for (std::int64_t r = 0; r < rows; ++r) {
    float* line = s.scores + r * tile;
    const std::int64_t valid = query == key ? before + r + 1 : tile;
    const std::int64_t columns = rounded(valid);
    for (std::int64_t c = valid; c < columns; ++c) line[c] = -infinity;
    const float largest = largest_of(line, columns, maximum[r]);
    const float shrink = fast_exp(maximum[r] - largest);
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t c = 0; c < columns; ++c) {
      line[c] = fast_exp(line[c] - largest);
      sum += line[c];
    }
    for (std::int64_t c = columns; c < std::min(tile, columns + most_lanes); ++c) line[c] = 0;
    maximum[r] = largest;
    total[r] = total[r] * shrink + sum;
    if (key > 0) {
#pragma omp simd
      for (std::int64_t c = 0; c < head.width; ++c) s.sums[r * head.width + c] *= shrink;
    }
    if (dropout.active()) {
      const float* factors =
          dropout_run(run, dropout, head.sample,
                      head.first_element + (query + before + r) * head.time + key, valid);
#pragma omp simd
      for (std::int64_t c = 0; c < valid; ++c) line[c] *= factors[c];
    }
  }
}

}  // namespace trireme::ops::cpu
