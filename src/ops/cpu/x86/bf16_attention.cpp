// SPDX-License-Identifier: Apache-2.0
// One task per (sample, head), which first packs the operands that all its tiles share. Tiles are
// 64 queries by 64 keys. Forward: query tiles outside, key tiles inside, with the running maximum
// and sum of Dao et al. 2022, algorithm 1. Backward: key tiles outside, query tiles inside, on
// transposed scores [keys, queries]: their rows are then what the products for dV and dK read, and
// only dQ needs them turned. dQ is added up in the order of the key tiles.
#include "ops/cpu/x86/bf16_attention.hpp"

#include "base/error.hpp"
#include "base/round_up.hpp"

#if defined(__x86_64__)
#include <array>
#include <cmath>
#include <limits>

#include <omp.h>

#include "device/buffer.hpp"
#include "device/cpu/cpu_stream.hpp"

#include "ops/cpu/x86/bf16_attention_products.hpp"
#include "ops/cpu/x86/bf16_softmax.hpp"

namespace trireme::ops::cpu::bf16_attention {
namespace {

using avx512::lanes;
using avx512::Stored;

const std::byte* bytes_of(const Bf16* at) {
  return reinterpret_cast<const std::byte*>(at);
}

/// Rows [time, channels] as a B whose columns are the positions: panels of 32 positions.
TRIREME_AVX512_BF16 void pack_positions(Unit* to,
                                        const Bf16* from,
                                        std::int64_t stride,
                                        const Head& head) {
  for (std::int64_t t = 0; t < head.time; t += panel_columns)
    avx512::pack_b_transposed<true>(to + t * head.channels / 2, {bytes_of(from), head.time, stride},
                                    t, 0, head.channels / 2);
}

/// Rows [time, channels] as a B whose columns are the channels: panels of 32 channels.
TRIREME_AVX512_BF16 void pack_channels(Unit* to,
                                       const Bf16* from,
                                       std::int64_t stride,
                                       const Head& head) {
  for (std::int64_t c = 0; c < head.channels; c += panel_columns)
    avx512::pack_b<true>(to + c * head.time / 2, {bytes_of(from), head.time, stride}, c, 0,
                         head.time / 2);
}

/// What one thread works in, in units of 32 bits; every part is a multiple of a cache line.
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
           2 * tile * s.head_channels + 2 * tile * tile + 3 * tile * pairs + s.time;
  }
};

template <class Products>
TRIREME_AVX512_BF16 void forward(
    Bf16* out, float* lse, const Bf16* qkv, const Head& head, Scratch scratch) {
  const std::int64_t part = head.out_stride;  // from Q to K to V
  Unit* k = scratch.take(head.units());
  Unit* v = scratch.take(head.units());
  float* scores = scratch.take_floats(tile * tile);
  float* sums = scratch.take_floats(tile * head.channels);
  float* more = scratch.take_floats(tile * head.channels);
  Unit* p = scratch.take(tile * pairs);
  pack_positions(k, qkv + part, head.qkv_stride, head);
  pack_channels(v, qkv + 2 * part, head.qkv_stride, head);
  alignas(64) std::array<float, tile> maximum, total, shrink;
  for (std::int64_t query = 0; query < head.time; query += tile) {
    maximum.fill(-std::numeric_limits<float>::infinity());
    total.fill(0);
    const auto* q = reinterpret_cast<const Unit*>(qkv + query * head.qkv_stride);
    for (std::int64_t key = 0; key <= query; key += tile) {
      const Part seen = key == query ? Part::lower : Part::all;
      Products::stored();
      Products::score(scores, q, 2 * head.qkv_stride, k + key * head.channels / 2, head, seen);
      avx512::softmax(reinterpret_cast<Bf16*>(p), scores, maximum.data(), total.data(),
                      shrink.data(), head.scale, key == query);
      Products::stored();
      const Unit* values = v + key / 2 * panel_columns;
      Products::template gather<false>(key == 0 ? sums : more, p, values, head, seen);
      if (key > 0)
        avx512::shrink_and_add(sums, more, shrink.data(), head.channels);
    }
    for (std::int64_t r = 0; r < tile; ++r) {
      const auto i = static_cast<std::size_t>(r);
      lse[query + r] = maximum[i] + std::log(total[i]);
      avx512::store_tile(out + (query + r) * head.out_stride, 0, sums + r * head.channels,
                         head.channels, 1, head.channels, 1.0F / total[i]);
    }
  }
}

struct Gradient {
  Bf16* dqkv;
  const Bf16* dout;
  const Bf16* qkv;
  const Bf16* out;
  const float* lse;
};

template <class Products>
TRIREME_AVX512_BF16 void backward(const Gradient& g, const Head& head, Scratch scratch) {
  const std::int64_t part = head.out_stride, C = head.channels;
  Unit* q_positions = scratch.take(head.units());
  Unit* q_channels = scratch.take(head.units());
  Unit* k_channels = scratch.take(head.units());
  Unit* dout_positions = scratch.take(head.units());
  Unit* dout_channels = scratch.take(head.units());
  float* dq = scratch.take_floats(head.time * C);
  float* dk = scratch.take_floats(tile * C);
  float* dv = scratch.take_floats(tile * C);
  float* scores = scratch.take_floats(tile * tile);
  float* dp = scratch.take_floats(tile * tile);
  Unit* p = scratch.take(tile * pairs);
  Unit* ds = scratch.take(tile * pairs);
  Unit* ds_rows = scratch.take(tile * pairs);
  float* delta = scratch.take_floats(head.time);
  pack_positions(q_positions, g.qkv, head.qkv_stride, head);
  pack_channels(q_channels, g.qkv, head.qkv_stride, head);
  pack_channels(k_channels, g.qkv + part, head.qkv_stride, head);
  pack_positions(dout_positions, g.dout, head.out_stride, head);
  pack_channels(dout_channels, g.dout, head.out_stride, head);
  avx512::multiply_rows(delta, g.dout, g.out, head.out_stride, head.time, C);
  std::fill(dq, dq + head.time * C, 0.0F);
  for (std::int64_t key = 0; key < head.time; key += tile) {
    const Bf16* k = g.qkv + key * head.qkv_stride + part;
    const auto* k_rows = reinterpret_cast<const Unit*>(k);
    const auto* v_rows = reinterpret_cast<const Unit*>(k + part);
    std::fill(dk, dk + 2 * tile * C, 0.0F);  // dv follows
    for (std::int64_t query = key; query < head.time; query += tile) {
      const bool diagonal = query == key;
      const Part seen = diagonal ? Part::upper : Part::all;
      const std::int64_t positions = query * C / 2, channels = query / 2 * panel_columns;
      Products::stored();
      Products::score(scores, k_rows, 2 * head.qkv_stride, q_positions + positions, head, seen);
      Products::score(dp, v_rows, 2 * head.qkv_stride, dout_positions + positions, head, seen);
      avx512::softmax_backward(reinterpret_cast<Bf16*>(p), reinterpret_cast<Bf16*>(ds), scores, dp,
                               g.lse + query, delta + query, head.scale, diagonal);
      const Stored turned{reinterpret_cast<const std::byte*>(ds), tile, tile};
      for (std::int64_t r = 0; r < tile; r += lanes)
        avx512::pack_rows(ds_rows + r * pairs, pairs, turned, r, 0, pairs);
      Products::stored();
      Products::template gather<true>(dv, p, dout_channels + channels, head, seen);
      Products::template gather<true>(dk, ds, q_channels + channels, head, seen);
      Products::template gather<true>(dq + query * C, ds_rows, k_channels + key / 2 * panel_columns,
                                      head, diagonal ? Part::lower : Part::all);
    }
    Bf16* to = g.dqkv + key * head.qkv_stride + part;
    avx512::store_tile(to, head.qkv_stride, dk, C, tile, C, head.scale);
    avx512::store_tile(to + part, head.qkv_stride, dv, C, tile, C, 1.0F);
  }
  avx512::store_tile(g.dqkv, head.qkv_stride, dq, C, head.time, C, head.scale);
}

template <class Products>
class PairedAttention final : public Attention::Implementation {
 public:
  PairedAttention(device::Device& device,
                  const AttentionShape& shape,
                  std::unique_ptr<Attention::Implementation> general)
      : shape_(shape),
        threads_(omp_get_max_threads()),
        thread_units_(rounded_up(Scratch::units(shape), 1024)),
        scratch_(device.allocate(static_cast<std::size_t>(thread_units_ * threads_) * sizeof(Unit),
                                 "attention scratch")),
        general_(std::move(general)) {}

  void forward(View out,
               View lse,
               ConstView qkv,
               ConstView starts,
               const Dropout& dropout,
               device::Stream& stream) override {
    if (dropout.active()) {
      general_->forward(out, lse, qkv, starts, dropout, stream);
      return;
    }
    device::cpu::stream_of(stream).run(
        [this, to = out.as<Bf16>(), sums = lse.as<float>(), from = qkv.as<Bf16>()] {
          for_heads([&](std::int64_t i, std::int64_t first, std::int64_t packed, Scratch mine) {
            bf16_attention::forward<Products>(to + first, sums + i * shape_.time, from + packed,
                                              head(), mine);
          });
        });
  }

  void backward(View dqkv,
                ConstView dout,
                ConstView qkv,
                ConstView out,
                ConstView lse,
                ConstView starts,
                const Dropout& dropout,
                device::Stream& stream) override {
    if (dropout.active()) {
      general_->backward(dqkv, dout, qkv, out, lse, starts, dropout, stream);
      return;
    }
    const Gradient all{dqkv.as<Bf16>(), dout.as<Bf16>(), qkv.as<Bf16>(), out.as<Bf16>(),
                       lse.as<float>()};
    device::cpu::stream_of(stream).run([this, all] {
      for_heads([&](std::int64_t i, std::int64_t first, std::int64_t packed, Scratch mine) {
        bf16_attention::backward<Products>({all.dqkv + packed, all.dout + first, all.qkv + packed,
                                            all.out + first, all.lse + i * shape_.time},
                                           head(), mine);
      });
    });
  }

  [[nodiscard]] std::size_t scratch_bytes() const override {
    return scratch_.bytes() + (general_ ? general_->scratch_bytes() : 0);
  }

 private:
  [[nodiscard]] Head head() const {
    const std::int64_t row = shape_.heads * shape_.head_channels;
    return {shape_.time, shape_.head_channels, 3 * row, row,
            1.0F / std::sqrt(static_cast<float>(shape_.head_channels))};
  }

  /// Calls body(number, first element of out, of qkv, scratch) for every (sample, head).
  template <class Body>
  void for_heads(const Body& body) const {
    const std::int64_t row = shape_.heads * shape_.head_channels;
    const int threads = std::min(threads_, omp_get_max_threads());
    auto* scratch = reinterpret_cast<Unit*>(scratch_.data());
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
      const typename Products::Scope scope;
      Unit* mine = scratch + omp_get_thread_num() * thread_units_;
#pragma omp for schedule(dynamic)
      for (std::int64_t i = 0; i < shape_.batch * shape_.heads; ++i) {
        const std::int64_t sample = i / shape_.heads, h = i % shape_.heads;
        const std::int64_t first = sample * shape_.time * row + h * shape_.head_channels;
        body(i, first, first + 2 * sample * shape_.time * row, Scratch{mine});
      }
    }
  }

  AttentionShape shape_;
  int threads_;  // at construction; more are not used
  std::int64_t thread_units_;
  device::Buffer scratch_;
  std::unique_ptr<Attention::Implementation> general_;
};

}  // namespace

bool attends(const AttentionShape& shape) {
  return shape.dtype == DType::bf16 && shape.time % tile == 0 &&
         shape.head_channels % panel_columns == 0 && shape.group() == 1 && shape.window == 0 &&
         !shape.documents && (AmxProducts::available() || Avx512Products::available());
}

std::unique_ptr<Attention::Implementation> make_attention(
    device::Device& device,
    const AttentionShape& shape,
    std::unique_ptr<Attention::Implementation> general) {
  if (AmxProducts::available())
    return std::make_unique<PairedAttention<AmxProducts>>(device, shape, std::move(general));
  return std::make_unique<PairedAttention<Avx512Products>>(device, shape, std::move(general));
}

}  // namespace trireme::ops::cpu::bf16_attention
#else
namespace trireme::ops::cpu::bf16_attention {

bool attends(const AttentionShape& /*shape*/) {
  return false;
}

std::unique_ptr<Attention::Implementation> make_attention(
    device::Device& /*device*/,
    const AttentionShape& shape,
    std::unique_ptr<Attention::Implementation> general) {
  TRIREME_EXPECT(false, "attention of {} by AVX-512 on another processor", name(shape.dtype));
  return general;
}

}  // namespace trireme::ops::cpu::bf16_attention
#endif
