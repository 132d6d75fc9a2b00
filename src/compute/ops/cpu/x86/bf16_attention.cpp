// SPDX-License-Identifier: Apache-2.0
// One task per (sample, head of keys), which first packs the operands that all its tiles share.
// Tiles are 64 queries by 64 keys; those of which no query sees a key are not computed. Forward:
// query tiles outside, key tiles inside, with the running maximum and sum of Dao et al. 2022,
// algorithm 1. Backward: key tiles outside, query tiles inside, on transposed scores [keys,
// queries]: their rows are then what the products for dV and dK read, and only dQ needs them
// turned. dQ is added up in the order of the key tiles; dK and dV in that of the query heads that
// share the keys, and of each head's query tiles.
#include "ops/cpu/x86/bf16_attention.hpp"

#if defined(__x86_64__)
#include <algorithm>
#include <array>
#include <cmath>

#include <omp.h>

#include "ops/cpu/x86/bf16_attention_products.hpp"
#include "ops/cpu/x86/bf16_softmax.hpp"

namespace trireme::ops::cpu::bf16_attention {
namespace {

const std::byte* bytes_of(const Bf16* at) {
  return reinterpret_cast<const std::byte*>(at);
}

/// Rows [time, channels] as a B whose columns are the positions: panels of 32 positions.
TRIREME_AVX512 void pack_positions(Unit* to,
                                   const Bf16* from,
                                   std::int64_t stride,
                                   const AttentionHead& head) {
  for (std::int64_t t = 0; t < head.time; t += panel_columns)
    avx512::pack_b_transposed<Units::pairs>(
        to + t * head.channels / 2, {bytes_of(from), head.time, stride}, t, 0, head.channels / 2);
}

/// Rows [time, channels] as a B whose columns are the channels: panels of 32 channels.
TRIREME_AVX512 void pack_channels(Unit* to,
                                  const Bf16* from,
                                  std::int64_t stride,
                                  const AttentionHead& head) {
  for (std::int64_t c = 0; c < head.channels; c += panel_columns)
    avx512::pack_b<Units::pairs>(to + c * head.time / 2, {bytes_of(from), head.time, stride}, c, 0,
                                 head.time / 2);
}

/// A tile of rows: in their place, all may be mapped to a few sets of the first-level cache.
TRIREME_AVX512 void copy_rows(Unit* to,
                              const Bf16* from,
                              std::int64_t stride,
                              const AttentionHead& head) {
  for (std::int64_t r = 0; r < tile; ++r, to += head.channels / 2)
    for (std::int64_t u = 0; u < head.channels / 2; u += lanes)
      _mm512_storeu_si512(to + u, _mm512_loadu_si512(from + r * stride + 2 * u));
}

std::int64_t units_of(const AttentionHead& head) {
  return head.time * head.channels / 2;
}

/// Scratch of one thread, in units of 32 bits; every part is a multiple of a cache line.
struct Scratch {
  Unit* at;
  Unit* take(std::int64_t units) {
    Unit* part = at;
    at += units;
    return part;
  }
  float* take_floats(std::int64_t units) { return reinterpret_cast<float*>(take(units)); }
  static std::int64_t units(const AttentionShape& s) {
    return 5 * s.time * s.head_channels / 2 + s.time * s.head_channels +
           2 * (s.group() > 1 ? s.time : tile) * s.head_channels + tile * s.head_channels +
           2 * tile * tile + 3 * tile * pairs + s.time;
  }
};

/// One query head; k and v are packed.
template <class Products>
TRIREME_AVX512 void forward(Bf16* out,
                            float* lse,
                            const Bf16* qkv,
                            const Unit* k,
                            const Unit* v,
                            const AttentionHead& head,
                            Scratch scratch) {
  float* scores = scratch.take_floats(tile * tile);
  float* sums = scratch.take_floats(tile * head.channels);
  Unit* p = scratch.take(tile * pairs);
  Unit* q_rows = scratch.take(tile * head.channels / 2);
  alignas(64) std::array<float, tile> maximum, total, shrink;
  for (std::int64_t query = 0; query < head.time; query += tile) {
    maximum.fill(no_maximum);
    total.fill(0);
    copy_rows(q_rows, qkv + query * head.qkv_stride, head.qkv_stride, head);
    const std::int64_t first = head.first_tile(query);
    for (std::int64_t key = first; key <= query; key += tile) {
      const Seen seen(head, query, key);
      Products::stored();
      Products::score(scores, q_rows, k + key * head.channels / 2, head, seen.part);
      (seen.all ? softmax<false> : softmax<true>)(reinterpret_cast<Bf16*>(p), scores,
                                                  maximum.data(), total.data(), shrink.data(),
                                                  head.scale, seen);
      const Unit* values = v + key / 2 * panel_columns;
      if (key == first) {
        Products::stored();
        Products::template gather<false>(sums, p, values, head, seen.part);
        continue;
      }
      shrink_rows(sums, shrink.data(), head.channels);
      Products::stored();
      Products::template gather<true>(sums, p, values, head, seen.part);
    }
    for (std::int64_t r = 0; r < tile; ++r) {
      const auto i = static_cast<std::size_t>(r);
      lse[query + r] = log_sum_of(maximum[i], total[i]);
      avx512::store_rows(out + (query + r) * head.out_stride, 0, sums + r * head.channels, 1, head,
                         1.0F / total[i]);
    }
  }
}

/// `heads` query heads, one after the other, that share the keys of the first one.
template <class Products>
void forward_group(Bf16* out,
                   float* lse,
                   const Bf16* qkv,
                   const AttentionHead& head,
                   std::int64_t heads,
                   Scratch scratch) {
  Unit* k = scratch.take(units_of(head));
  Unit* v = scratch.take(units_of(head));
  pack_positions(k, qkv + head.to_key, head.qkv_stride, head);
  pack_channels(v, qkv + head.to_key + head.to_value, head.qkv_stride, head);
  for (std::int64_t h = 0; h < heads; ++h)
    forward<Products>(out + h * head.channels, lse + h * head.time, qkv + h * head.channels, k, v,
                      head, scratch);
}

struct Gradient {
  Bf16* dqkv;
  const Bf16* dout;
  const Bf16* qkv;
  const Bf16* out;
  const float* lse;
};

/// Shared by the query heads that share keys, in backward.
struct Shared {
  const Unit* k_channels;
  float* sums;  ///< dK, then dV: of all positions; with one query head, of one tile
  std::int64_t positions;
  bool first, last;  ///< the first head begins the sums, the last one stores them
};

template <class Products>
TRIREME_AVX512 void backward(const Gradient& g,
                             const Shared& shared,
                             const AttentionHead& head,
                             Scratch scratch) {
  const std::int64_t C = head.channels;
  Unit* q_positions = scratch.take(units_of(head));
  Unit* q_channels = scratch.take(units_of(head));
  Unit* dout_positions = scratch.take(units_of(head));
  Unit* dout_channels = scratch.take(units_of(head));
  float* dq = scratch.take_floats(head.time * C);
  float* scores = scratch.take_floats(tile * tile);
  float* dp = scratch.take_floats(tile * tile);
  Unit* p = scratch.take(tile * pairs);
  Unit* ds = scratch.take(tile * pairs);
  Unit* ds_rows = scratch.take(tile * pairs);
  Unit* k_rows = scratch.take(tile * C / 2);
  Unit* v_rows = scratch.take(tile * C / 2);
  float* delta = scratch.take_floats(head.time);
  pack_positions(q_positions, g.qkv, head.qkv_stride, head);
  pack_channels(q_channels, g.qkv, head.qkv_stride, head);
  pack_positions(dout_positions, g.dout, head.out_stride, head);
  pack_channels(dout_channels, g.dout, head.out_stride, head);
  avx512::multiply_rows(delta, g.dout, g.out, head.time, head);
  const auto gather = [&](bool begins, float* sums, const Unit* rows, const Unit* columns,
                          Part part) {
    if (begins)
      Products::template gather<false>(sums, rows, columns, head, part);
    else
      Products::template gather<true>(sums, rows, columns, head, part);
  };
  for (std::int64_t key = 0; key < head.time; key += tile) {
    const Bf16* k = g.qkv + key * head.qkv_stride + head.to_key;
    copy_rows(k_rows, k, head.qkv_stride, head);
    copy_rows(v_rows, k + head.to_value, head.qkv_stride, head);
    float* dk = shared.sums + key % shared.positions * C;
    float* dv = dk + shared.positions * C;
    const std::int64_t end = head.end_of_queries(key);
    for (std::int64_t query = key; query < end; query += tile) {
      const Seen seen(head, query, key);
      const Part part = transposed(seen.part);
      const std::int64_t positions = query * C / 2, channels = query / 2 * panel_columns;
      Products::stored();
      Products::score(scores, k_rows, q_positions + positions, head, part);
      Products::score(dp, v_rows, dout_positions + positions, head, part);
      (seen.all ? softmax_backward<false>
                : softmax_backward<true>)(reinterpret_cast<Bf16*>(p), reinterpret_cast<Bf16*>(ds),
                                          scores, dp, g.lse + query, delta + query, head.scale,
                                          seen);
      const Stored turned{reinterpret_cast<const std::byte*>(ds), tile, tile};
      for (std::int64_t r = 0; r < tile; r += lanes)
        avx512::pack_rows(ds_rows + r * pairs, pairs, turned, r, 0, pairs);
      Products::stored();
      const bool first = shared.first && query == key;
      gather(first, dv, p, dout_channels + channels, part);
      gather(first, dk, ds, q_channels + channels, part);
      gather(key == head.first_tile(query), dq + query * C, ds_rows,
             shared.k_channels + key / 2 * panel_columns, seen.part);
    }
    if (shared.last) {
      Bf16* to = g.dqkv + key * head.qkv_stride + head.to_key;
      avx512::store_rows(to, head.qkv_stride, dk, tile, head, head.scale);
      avx512::store_rows(to + head.to_value, head.qkv_stride, dv, tile, head, 1.0F);
    }
  }
  avx512::store_rows(g.dqkv, head.qkv_stride, dq, head.time, head, head.scale);
}

template <class Products>
void backward_group(const Gradient& g,
                    const AttentionHead& first,
                    std::int64_t heads,
                    Scratch scratch) {
  const std::int64_t positions = heads > 1 ? first.time : tile;
  Unit* k_channels = scratch.take(units_of(first));
  float* sums = scratch.take_floats(2 * positions * first.channels);
  pack_channels(k_channels, g.qkv + first.to_key, first.qkv_stride, first);
  AttentionHead head = first;
  for (std::int64_t h = 0; h < heads; ++h) {
    const std::int64_t at = h * head.channels;
    head.to_key = first.to_key - at;
    backward<Products>({g.dqkv + at, g.dout + at, g.qkv + at, g.out + at, g.lse + h * head.time},
                       {k_channels, sums, positions, h == 0, h + 1 == heads}, head, scratch);
  }
}

template <class Products>
class PairedAttention final : public Attention::Implementation {
 public:
  PairedAttention(const AttentionShape& shape, std::unique_ptr<Attention::Implementation> general)
      : shape_(shape), general_(std::move(general)) {}

  void forward(const AttentionForward& call, device::Stream& stream) override {
    if (call.dropout.active()) {
      general_->forward(call, stream);
      return;
    }
    run_with_scratch(stream, bytes_per_thread(), [this, call](const auto& scratch) {
      const auto* starts = call.starts.as_optional<std::int32_t>();
      for_heads(heads_at_a_time(), scratch,
                [&](std::int64_t sample, std::int64_t h, std::int64_t count, Scratch mine) {
                  const HeadPlace at = place_of(shape_, sample, h);
                  forward_group<Products>(call.out.as<Bf16>() + at.out,
                                          call.lse.as<float>() + at.lse,
                                          call.qkv.as<Bf16>() + at.qkv,
                                          head_of(shape_, sample, h, starts), count, mine);
                });
    });
  }

  void backward(const AttentionBackward& call, device::Stream& stream) override {
    if (call.dropout.active()) {
      general_->backward(call, stream);
      return;
    }
    run_with_scratch(stream, bytes_per_thread(), [this, call](const auto& scratch) {
      const auto* starts = call.starts.as_optional<std::int32_t>();
      for_heads(shape_.group(), scratch,
                [&](std::int64_t sample, std::int64_t h, std::int64_t count, Scratch mine) {
                  const HeadPlace at = place_of(shape_, sample, h);
                  backward_group<Products>(
                      {call.dqkv.as<Bf16>() + at.qkv, call.dout.as<Bf16>() + at.out,
                       call.qkv.as<Bf16>() + at.qkv, call.out.as<Bf16>() + at.out,
                       call.lse.as<float>() + at.lse},
                      head_of(shape_, sample, h, starts), count, mine);
                });
    });
  }

 private:
  [[nodiscard]] std::int64_t bytes_per_thread() const {
    return Scratch::units(shape_) * static_cast<std::int64_t>(sizeof(Unit));
  }

  /// Query heads that a task of forward takes: those that share keys, which are then packed once,
  /// where that leaves every thread several tasks. Each head's bits are the same either way.
  [[nodiscard]] std::int64_t heads_at_a_time() const {
    constexpr std::int64_t enough = 4;
    return shape_.batch * shape_.key_value_heads() >= enough * omp_get_max_threads()
               ? shape_.group()
               : 1;
  }

  /// Calls body(sample, first head, heads, scratch) for runs of `heads` query heads.
  void for_heads(std::int64_t heads, const auto& scratch, const auto& body) const {
#pragma omp parallel if (omp_get_max_threads() > 1)
    {
      const typename Products::Scope scope;
      auto* mine = reinterpret_cast<Unit*>(scratch());
#pragma omp for schedule(dynamic)
      for (std::int64_t i = 0; i < shape_.batch * shape_.heads; i += heads)
        body(i / shape_.heads, i % shape_.heads, heads, Scratch{mine});
    }
  }

  AttentionShape shape_;
  std::unique_ptr<Attention::Implementation> general_;
};

}  // namespace

bool attends(const AttentionShape& shape) {
  return shape.dtype == DType::bf16 && shape.time % tile == 0 &&
         shape.head_channels % panel_columns == 0 &&
         (AmxProducts::available() || Avx512Products::available());
}

std::unique_ptr<Attention::Implementation> make_attention(
    const AttentionShape& shape, std::unique_ptr<Attention::Implementation> general) {
  if (AmxProducts::available())
    return std::make_unique<PairedAttention<AmxProducts>>(shape, std::move(general));
  return std::make_unique<PairedAttention<Avx512Products>>(shape, std::move(general));
}

}  // namespace trireme::ops::cpu::bf16_attention
#endif
