// SPDX-License-Identifier: Apache-2.0
// One task of attention.cpp, forward and backward. Included once per level (for_each_level.hpp).

namespace trireme::ops::cpu::TRIREME_LEVEL {
namespace {

template <class T>
TRIREME_KERNEL void attention_forward(T* out,
                                      float* lse,
                                      const T* qkv,
                                      const AttentionHead* head_at,
                                      const Dropout* dropout,
                                      std::int64_t query,
                                      float* scratch) {
  const AttentionHead head = *head_at;
  const AttentionScratch s(scratch, head.width);
  const std::int64_t rows = std::min(tile, head.time - query);
  load_rows(s.q, qkv + query * head.qkv_stride, head.qkv_stride, rows, head, head.scale);
  alignas(64) std::array<float, tile> maximum, total;
  maximum.fill(-std::numeric_limits<float>::infinity());
  total.fill(0);
  const std::int64_t first = head.first_tile(query);
  for (std::int64_t key = first; key <= query; key += tile) {
    const std::int64_t keys = std::min(tile, head.time - key);
    const bool diagonal = key == query;
    const T* k = qkv + key * head.qkv_stride + head.to_key;
    load_transposed(s.k, k, head.qkv_stride, keys, head);
    load_rows(s.v, k + head.to_value, head.qkv_stride, keys, head, 1.0F);
    tile_product<false>(s.scores, tile, {s.q, head.width}, {s.k, tile}, rows, tile, head.channels,
                        diagonal ? Triangle::result : Triangle::none, false);
    hide_unseen(s.scores, rows, query, key, head);
    softmax_tile(s, maximum.data(), total.data(), rows, query, key, head, *dropout);
    tile_product<false>(s.sums, head.width, {s.scores, tile}, {s.v, head.width}, rows, head.width,
                        keys, diagonal ? Triangle::depth_to_row : Triangle::none, key > first);
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto i = static_cast<std::size_t>(r);
    lse[query + r] = maximum[i] + std::log(total[i]);
    store_rows(out + (query + r) * head.out_stride, 0, s.sums + r * head.width, 1, head,
               1.0F / total[i]);
  }
}

/// A finished tile of dK or dV into the packed gradient, or to the sums of its group.
template <class T>
TRIREME_PART inline void finish_tile(T* to,
                                     const float* tile_sums,
                                     float* shared,
                                     std::int64_t rows,
                                     const HeadGradient<T>& g,
                                     const AttentionHead& head) {
  if (g.shared == nullptr) {
    store_rows(to, head.qkv_stride, tile_sums, rows, head, 1.0F);
    return;
  }
  const std::int64_t count = rows * head.width;
  if (g.first) {
    std::copy_n(tile_sums, count, shared);
  } else {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) shared[i] += tile_sums[i];
  }
  if (g.last)
    store_rows(to, head.qkv_stride, shared, rows, head, 1.0F);
}

template <class T>
TRIREME_KERNEL void attention_backward(const HeadGradient<T>* gradient,
                                       const AttentionHead* head_at,
                                       const Dropout* dropout,
                                       float* scratch) {
  const AttentionHead head = *head_at;
  const HeadGradient<T> g = *gradient;
  const BackwardScratch s(scratch, head.time, head.width);
  const std::int64_t width = head.width, stride = head.qkv_stride;
  multiply_rows(s.delta, g.dout, g.out, head.time, head);
  std::fill(s.dq, s.dq + head.time * width, 0.0F);
  for (std::int64_t key = 0; key < head.time; key += tile) {
    const std::int64_t keys = std::min(tile, head.time - key);
    const T* k = g.qkv + key * stride + head.to_key;
    load_rows(s.k, k, stride, keys, head, 1.0F);
    load_transposed(s.k_transposed, k, stride, keys, head);
    load_transposed(s.v_transposed, k + head.to_value, stride, keys, head);
    for (std::int64_t query = key; query < head.end_of_queries(key); query += tile) {
      const std::int64_t rows = std::min(tile, head.time - query);
      const bool diagonal = query == key;
      const auto result = diagonal ? Triangle::result : Triangle::none;
      const auto to_row = diagonal ? Triangle::depth_to_row : Triangle::none;
      const auto from_row = diagonal ? Triangle::depth_from_row : Triangle::none;
      load_rows(s.q, g.qkv + query * stride, stride, rows, head, head.scale);
      load_rows(s.dout, g.dout + query * head.out_stride, head.out_stride, rows, head, 1.0F);
      tile_product<false>(s.scores, tile, {s.q, width}, {s.k_transposed, tile}, rows, tile,
                          head.channels, result, false);
      tile_product<false>(s.dscores, tile, {s.dout, width}, {s.v_transposed, tile}, rows, tile,
                          head.channels, result, false);
      hide_unseen(s.scores, rows, query, key, head);
      softmax_backward_tile(s.scores, s.dscores, g.lse, s.delta, rows, query, key, head, *dropout);
      tile_product<true>(s.dv, width, {s.scores, tile}, {s.dout, width}, keys, width, rows,
                         from_row, !diagonal);
      tile_product<true>(s.dk, width, {s.dscores, tile}, {s.q, width}, keys, width, rows, from_row,
                         !diagonal);
      tile_product<false>(s.dq + query * width, width, {s.dscores, tile}, {s.k, width}, rows, width,
                          keys, to_row, true);
    }
    T* dk = g.dqkv + key * stride + head.to_key;
    float* dk_shared = g.shared == nullptr ? nullptr : g.shared + key * width;
    float* dv_shared = g.shared == nullptr ? nullptr : dk_shared + head.time * width;
    finish_tile(dk, s.dk, dk_shared, keys, g, head);
    finish_tile(dk + head.to_value, s.dv, dv_shared, keys, g, head);
  }
  store_rows(g.dqkv, stride, s.dq, head.time, head, head.scale);
}

}  // namespace
}  // namespace trireme::ops::cpu::TRIREME_LEVEL
