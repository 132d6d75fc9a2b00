// SPDX-License-Identifier: Apache-2.0
// What attention does around its products, for AVX-512: tiles in and out, and the softmax of a tile
// forward and backward. Whole registers and masks instead of loops over ends.
//
// A tile of scores is [rows, 64]. Of row r, the first `valid` columns count: r + 1 on the diagonal,
// else all. What follows them is zero up to where products read: less than 16 columns further.
//
// 1. Tiles are fp32 in scratch that one thread owns, their rows whole registers.
// 2. A row's maximum, sum and exponentials depend on the row alone. The 64 columns are four
//    registers that are combined lane by lane, and then the lanes: one order for every tile.
// 3. The numbers are those of the portable loops (attention_tiles.hpp) up to the rounding of sums.
//    They have the same bits in attention of whole sequences and in that of single positions.
// 4. The running maximum begins at -infinity: exp(-infinity - finite) is 0, so the first tile of a
//    row needs no case of its own. It must not see a tile of which it sees no key; hide_unseen()
//    puts finite scores there.
#pragma once

#include <algorithm>

#include "ops/cpu/x86/avx512_math.hpp"

namespace trireme::ops::cpu::avx512 {

inline constexpr std::int64_t score_columns = 64;

/// to = [tile, width] from `rows` rows of `columns`, `stride` apart, times `scale`; else zero.
template <std::int64_t tile, class T>
TRIREME_AVX512 void load_tile(float* to,
                              std::int64_t width,
                              const T* from,
                              std::int64_t stride,
                              std::int64_t rows,
                              std::int64_t columns,
                              float scale) {
  for (std::int64_t c = 0; c < width; c += lanes) {
    const __mmask16 keep = first_lanes(columns - c);
    const __m512 factor = _mm512_set1_ps(scale);
    std::int64_t r = 0;
    for (; r < rows; ++r)
      _mm512_storeu_ps(to + r * width + c,
                       _mm512_mul_ps(load_floats(from + r * stride + c, keep), factor));
    for (; r < tile; ++r) _mm512_storeu_ps(to + r * width + c, _mm512_setzero_ps());
  }
}

/// to = [columns, tile] of the same; what is missing is zero.
template <std::int64_t tile, class T>
TRIREME_AVX512 void load_transposed_tile(
    float* to, const T* from, std::int64_t stride, std::int64_t rows, std::int64_t columns) {
  static_assert(tile % lanes == 0);
  for (std::int64_t column = 0; column < columns; column += lanes) {
    const __mmask16 keep = first_lanes(columns - column);
    for (std::int64_t row = 0; row < tile; row += lanes) {
      __m512i line[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i)
        line[i] = row + i < rows
                      ? _mm512_castps_si512(load_floats(from + (row + i) * stride + column, keep))
                      : _mm512_setzero_si512();
      transpose(line);
      const std::int64_t count = std::min(lanes, columns - column);
      float* at = to + column * tile + row;
      if (count == lanes) {
#pragma GCC unroll 16
        for (std::int64_t i = 0; i < 16; ++i) _mm512_storeu_si512(at + i * tile, line[i]);
      } else {
        for (std::int64_t i = 0; i < count; ++i) _mm512_storeu_si512(at + i * tile, line[i]);
      }
    }
  }
}

/// `rows` rows of `columns` from a tile of `width`, each times `scale`.
template <class T>
TRIREME_AVX512 void store_tile(T* to,
                               std::int64_t stride,
                               const float* from,
                               std::int64_t width,
                               std::int64_t rows,
                               std::int64_t columns,
                               float scale) {
  const __m512 factor = _mm512_set1_ps(scale);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; c += lanes)
      store_floats(to + r * stride + c,
                   _mm512_mul_ps(_mm512_loadu_ps(from + r * width + c), factor),
                   first_lanes(columns - c));
}

/// delta[r] = a row of `a` times the row of `b`.
template <class T>
TRIREME_AVX512 void multiply_rows(float* delta,
                                  const T* a,
                                  const T* b,
                                  std::int64_t stride,
                                  std::int64_t rows,
                                  std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r) {
    __m512 sum = _mm512_setzero_ps();
    for (std::int64_t c = 0; c < columns; c += lanes) {
      const __mmask16 keep = first_lanes(columns - c);
      sum = _mm512_fmadd_ps(load_floats(a + r * stride + c, keep),
                            load_floats(b + r * stride + c, keep), sum);
    }
    delta[r] = _mm512_reduce_add_ps(sum);
  }
}

/// The columns [16 v, 16 v + 16) of a row of which `valid` count.
TRIREME_AVX512_INLINE __mmask16 counted(int v, std::int64_t valid) {
  return first_lanes(valid - v * lanes);
}

/// Scores become exponentials against the rows' running maximum and sum; shrink[r] is what the
/// row's earlier sums are to be multiplied by. Of the tile's rows, `before` come before the first.
/// maximum, total, shrink = [rows] fp32; the first two are read and written.
TRIREME_AVX512 inline void softmax_rows(float* scores,
                                        float* maximum,
                                        float* total,
                                        float* shrink,
                                        std::int64_t rows,
                                        bool diagonal,
                                        std::int64_t before) {
  constexpr int vectors = score_columns / lanes;
  const __m512 least = _mm512_set1_ps(-__builtin_inff());
  for (std::int64_t r = 0; r < rows; ++r) {
    float* line = scores + r * score_columns;
    const std::int64_t valid = diagonal ? before + r + 1 : score_columns;
    __m512 s[vectors], largest = least;
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      s[v] = _mm512_mask_loadu_ps(least, counted(v, valid), line + v * lanes);
      largest = _mm512_max_ps(largest, s[v]);
    }
    const float old = maximum[r];
    const float now = _mm512_reduce_max_ps(largest);
    maximum[r] = now > old ? now : old;
    const __m512 base = _mm512_set1_ps(maximum[r]);
    __m512 sum = _mm512_setzero_ps();
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      s[v] = exponential(_mm512_sub_ps(s[v], base));
      sum = _mm512_add_ps(sum, s[v]);
      _mm512_storeu_ps(line + v * lanes, s[v]);
    }
    shrink[r] = _mm512_cvtss_f32(exponential(_mm512_sub_ps(_mm512_set1_ps(old), base)));
    total[r] = total[r] * shrink[r] + _mm512_reduce_add_ps(sum);
  }
}

/// Rows of [rows, width] times a factor each.
TRIREME_AVX512 inline void scale_rows(float* sums,
                                      std::int64_t width,
                                      const float* factors,
                                      std::int64_t rows) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const __m512 factor = _mm512_set1_ps(factors[r]);
    for (std::int64_t c = 0; c < width; c += lanes)
      _mm512_storeu_ps(sums + r * width + c,
                       _mm512_mul_ps(_mm512_loadu_ps(sums + r * width + c), factor));
  }
}

/// From scores and dP to P and dS = P (dP - delta), in place, without dropout. P = exp(score -
/// log_sum), whose sums forward left. Columns that do not count become zero in both.
TRIREME_AVX512 inline void softmax_backward_rows(float* scores,
                                                 float* dscores,
                                                 const float* log_sums,
                                                 const float* delta,
                                                 std::int64_t rows,
                                                 bool diagonal) {
  constexpr int vectors = score_columns / lanes;
  for (std::int64_t r = 0; r < rows; ++r) {
    float* p = scores + r * score_columns;
    float* d = dscores + r * score_columns;
    const std::int64_t valid = diagonal ? r + 1 : score_columns;
    const __m512 log_sum = _mm512_set1_ps(log_sums[r]), mean = _mm512_set1_ps(delta[r]);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      const __mmask16 keep = counted(v, valid);
      const __m512 e = _mm512_maskz_mov_ps(
          keep, exponential(_mm512_sub_ps(_mm512_loadu_ps(p + v * lanes), log_sum)));
      const __m512 ds = _mm512_mul_ps(e, _mm512_sub_ps(_mm512_loadu_ps(d + v * lanes), mean));
      _mm512_storeu_ps(p + v * lanes, e);
      _mm512_storeu_ps(d + v * lanes, _mm512_maskz_mov_ps(keep, ds));
    }
  }
}

}  // namespace trireme::ops::cpu::avx512
