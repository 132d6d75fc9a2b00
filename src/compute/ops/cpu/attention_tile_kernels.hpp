// SPDX-License-Identifier: Apache-2.0
// Operations of attention on tiles (attention_tiles.hpp), sixteen numbers at a time. Included once
// per level (for_each_level.hpp).
// 1. Whole registers and masks instead of scalar remainder loops: of a row of 64 scores, the first
//    `valid` are used, and the rest becomes zero.
// 2. A row's maximum, sum and exponentials depend on the row alone. The 64 columns are combined
//    lane by lane, and then the lanes: one order for every tile.
// 3. The running maximum begins at -infinity: exp(-infinity - finite) is 0, so the first tile of a
//    row is not a special case. Scores must not be -infinity for a whole row of a tile;
//    hide_unseen() uses finite ones.

namespace trireme::ops::cpu::TRIREME_LEVEL {
namespace {

inline constexpr int score_vectors = tile / lanes;

/// to = [tile, width] from rows of `channels`, `stride` apart, times `scale`; missing rows and
/// channels are zero.
template <class T>
TRIREME_KERNEL void load_rows(float* to,
                              const T* from,
                              std::int64_t stride,
                              std::int64_t rows,
                              const AttentionHead& head,
                              float scale) {
  const Floats factor = every(scale);
  for (std::int64_t c = 0; c < head.width; c += lanes) {
    const Mask keep = first_lanes(head.channels - c);
    for (std::int64_t r = 0; r < tile; ++r)
      store_floats(to + r * head.width + c,
                   r < rows ? load_floats(from + r * stride + c, keep) * factor : zeros());
  }
}

/// to = [channels, tile]: the same rows, transposed.
template <class T>
TRIREME_PART inline void load_transposed(
    float* to, const T* from, std::int64_t stride, std::int64_t rows, const AttentionHead& head) {
  constexpr Units kind = std::is_same_v<T, float> ? Units::single : Units::widened;
  turn_rows<kind, tile>(reinterpret_cast<Unit*>(to), reinterpret_cast<const std::byte*>(from),
                        stride * element_bytes(kind), rows, head.channels, head.channels);
}

/// Rows of `channels`, `stride` apart, from [tile, width], each element times `scale`.
template <class T>
TRIREME_KERNEL void store_rows(T* to,
                               std::int64_t stride,
                               const float* from,
                               std::int64_t rows,
                               const AttentionHead& head,
                               float scale) {
  const Floats factor = every(scale);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < head.channels; c += lanes)
      store_floats(to + r * stride + c, load_floats(from + r * head.width + c) * factor,
                   first_lanes(head.channels - c));
}

/// products[r] = a row of `a` times the row of `b`.
template <class T>
TRIREME_KERNEL void multiply_rows(
    float* products, const T* a, const T* b, std::int64_t rows, const AttentionHead& head) {
  for (std::int64_t r = 0; r < rows; ++r, a += head.out_stride, b += head.out_stride) {
    Floats sum = zeros();
    for (std::int64_t c = 0; c < head.channels; c += lanes) {
      const Mask keep = first_lanes(head.channels - c);
      sum = fused(load_floats(a + c, keep), load_floats(b + c, keep), sum);
    }
    products[r] = sum_of_lanes(sum);
  }
}

/// Softmax of one tile of scores with the rows' running maximum and sum. Replaces `scores` by the
/// probabilities (after dropout) and rescales the rows' sums so far. The rows are those from
/// `query` + `before` on, of the tile of queries that begins at `query`.
TRIREME_KERNEL inline void softmax_tile(const AttentionScratch& s,
                                        float* maximum,
                                        float* total,
                                        std::int64_t rows,
                                        std::int64_t query,
                                        std::int64_t key,
                                        const AttentionHead& head,
                                        const Dropout& dropout,
                                        std::int64_t before = 0) {
  const Floats least = every(-std::numeric_limits<float>::infinity());
  DropoutRun run;
  for (std::int64_t r = 0; r < rows; ++r) {
    float* line = s.scores + r * tile;
    const std::int64_t valid = query == key ? before + r + 1 : tile;
    Floats e[score_vectors], largest = least;
#pragma GCC unroll 4
    for (int v = 0; v < score_vectors; ++v) {
      e[v] = where(first_lanes(valid - v * lanes), load_floats(line + v * lanes), least);
      largest = larger(largest, e[v]);
    }
    const float old = maximum[r], now = largest_lane(largest);
    maximum[r] = now > old ? now : old;
    const Floats base = every(maximum[r]);
    Floats sum = zeros();
#pragma GCC unroll 4
    for (int v = 0; v < score_vectors; ++v) {
      e[v] = exponential(e[v] - base);
      sum = sum + e[v];
      store_floats(line + v * lanes, e[v]);
    }
    const Floats shrink = exponential(every(old) - base);
    total[r] = total[r] * first_lane(shrink) + sum_of_lanes(sum);
    if (key > 0)
      for (float* at = s.sums + r * head.width; at < s.sums + (r + 1) * head.width; at += lanes)
        store_floats(at, load_floats(at) * shrink);
    if (dropout.active()) {
      const float* factors =
          dropout_run(run, dropout, head.sample,
                      head.first_element + (query + before + r) * head.time + key, valid);
#pragma omp simd
      for (std::int64_t c = 0; c < valid; ++c) line[c] *= factors[c];
    }
  }
}

/// Replaces scores and dP by P (after dropout) and dS = P (dP - delta), in place. P = exp(score -
/// lse), with lse from forward.
TRIREME_KERNEL inline void softmax_backward_tile(float* scores,
                                                 float* dscores,
                                                 const float* lse,
                                                 const float* delta,
                                                 std::int64_t rows,
                                                 std::int64_t query,
                                                 std::int64_t key,
                                                 const AttentionHead& head,
                                                 const Dropout& dropout) {
  DropoutRun run;
  for (std::int64_t r = 0; r < rows; ++r) {
    float* p = scores + r * tile;
    float* d = dscores + r * tile;
    const std::int64_t valid = query == key ? r + 1 : tile;
    const Floats log_sum = every(lse[query + r]), mean = every(delta[query + r]);
    const float* factors =
        dropout.active() ? dropout_run(run, dropout, head.sample,
                                       head.first_element + (query + r) * head.time + key, tile)
                         : nullptr;
#pragma GCC unroll 4
    for (int v = 0; v < score_vectors; ++v) {
      const Mask keep = first_lanes(valid - v * lanes);
      const Floats dp = load_floats(d + v * lanes);
      Floats e = where(keep, exponential(load_floats(p + v * lanes) - log_sum), zeros());
      Floats ds = zeros();
      if (factors != nullptr) {
        const Floats factor = load_floats(factors + v * lanes);
        ds = e * fused_minus(dp, factor, mean);
        e = e * factor;
      } else {
        ds = e * (dp - mean);
      }
      store_floats(p + v * lanes, e);
      store_floats(d + v * lanes, where(keep, ds, zeros()));
    }
  }
}

}  // namespace
}  // namespace trireme::ops::cpu::TRIREME_LEVEL
