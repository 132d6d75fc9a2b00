// SPDX-License-Identifier: Apache-2.0
// One task of cached_attention.cpp. Included once per level (for_each_level.hpp).

namespace trireme::ops::cpu::TRIREME_LEVEL {
namespace {

template <class T>
TRIREME_KERNEL void attend_run(T* out,
                               const T* q,
                               float* cache,
                               const CacheLayout* layout,
                               const AttentionHead* head_at,
                               const Run* run_at,
                               float* scratch) {
  const AttentionHead head = *head_at;
  const Run run = *run_at;
  const AttentionScratch s(scratch, head.width);
  const Dropout none{};
  const std::int64_t before = run.position % tile, query = run.position - before;
  load_rows(s.q, q, head.qkv_stride, run.rows, head, head.scale);
  alignas(64) std::array<float, tile> maximum, total;
  maximum.fill(-std::numeric_limits<float>::infinity());
  total.fill(0);
  const std::int64_t first = head.first_tile(run.position);
  for (std::int64_t key = first; key <= query; key += tile) {
    const std::int64_t keys = key == query ? before + run.rows : tile;
    tile_product<false>(s.scores, tile, {s.q, head.width}, {layout->keys(cache, key), tile},
                        run.rows, tile, head.channels, Triangle::none, false);
    hide_unseen(s.scores, run.rows, run.position, key, head);
    softmax_tile(s, maximum.data(), total.data(), run.rows, query, key, head, none, before);
    tile_product<false>(s.sums, head.width, {s.scores, tile},
                        {layout->values(cache, key), head.width}, run.rows, head.width, keys,
                        Triangle::none, key > first);
  }
  for (std::int64_t r = 0; r < run.rows; ++r)
    store_rows(out + r * head.out_stride, 0, s.sums + r * head.width, 1, head,
               1.0F / total[static_cast<std::size_t>(r)]);
}

}  // namespace
}  // namespace trireme::ops::cpu::TRIREME_LEVEL
