// SPDX-License-Identifier: Apache-2.0
// One task per (sample, head), which first packs the operands that all its tiles share. Tiles are
// 64 queries by 64 keys. Forward: query tiles outside, key tiles inside, with the running maximum
// and sum of Dao et al. 2022, algorithm 1. Backward: key tiles outside, query tiles inside, on
// transposed scores [keys, queries]: their rows are then what the products for dV and dK read, and
// only dQ needs them turned. dQ is added up in the order of the key tiles.
#include "ops/cpu/x86/amx_attention.hpp"

#include "base/error.hpp"

#include "ops/cpu/x86/amx_matmul.hpp"

#if defined(__x86_64__)
#include <array>
#include <cmath>
#include <limits>

#include <omp.h>

#include "device/buffer.hpp"
#include "device/cpu/cpu_stream.hpp"

#include "ops/cpu/x86/amx_tiles.hpp"
#include "ops/cpu/x86/avx512_attention.hpp"

namespace trireme::ops::cpu::amx {
namespace {

using avx512::panel_columns;
using avx512::Stored;

constexpr std::int64_t tile = 64, pairs = tile / 2;
/// Of a tile of bf16 with rows of 64.
constexpr std::int64_t line_bytes = tile * 2;
constexpr int vectors = tile / lanes;

/// One (sample, head).
struct Head {
  std::int64_t time, channels;
  std::int64_t qkv_stride, out_stride;  // in elements
  float scale;

  [[nodiscard]] std::int64_t panels() const { return channels / panel_columns; }
  /// Units of a packed operand of [time, channels].
  [[nodiscard]] std::int64_t units() const { return time * channels / 2; }
};

const std::byte* bytes_of(const Bf16* at) {
  return reinterpret_cast<const std::byte*>(at);
}

/// Rows [time, channels] as a B whose columns are the positions: panels of 32 positions.
TRIREME_AMX void pack_positions(Unit* to, const Bf16* from, std::int64_t stride, const Head& head) {
  for (std::int64_t t = 0; t < head.time; t += panel_columns)
    avx512::pack_b_transposed<true>(to + t * head.channels / 2, {bytes_of(from), head.time, stride},
                                    t, 0, head.channels / 2);
}

/// Rows [time, channels] as a B whose columns are the channels: panels of 32 channels.
TRIREME_AMX void pack_channels(Unit* to, const Bf16* from, std::int64_t stride, const Head& head) {
  for (std::int64_t c = 0; c < head.channels; c += panel_columns)
    avx512::pack_b<true>(to + c * head.time / 2, {bytes_of(from), head.time, stride}, c, 0,
                         head.time / 2);
}

/// sums [64, 64] = rows (64, `row_bytes` apart) times 64 packed positions. Blocks that causality
/// leaves out are not computed: those above the diagonal, or below it where rows are keys.
enum class Part : std::uint8_t { all, lower, upper };
TRIREME_AMX void score(float* sums,
                       const Unit* rows,
                       std::int64_t row_bytes,
                       const Unit* positions,
                       const Head& head,
                       Part part) {
  for (std::int64_t r = 0; r < tile; r += block_edge)
    for (std::int64_t c = 0; c < tile; c += block_edge)
      if (part == Part::all || (part == Part::lower ? c <= r : r <= c))
        multiply_tiles<false>(sums + r * tile + c, tile, rows + r * row_bytes / 4, row_bytes,
                              positions + c * head.channels / 2, head.channels / 2);
}

/// sums [64, channels] (+)= rows [64, 64] of bf16 times the packed channels of 64 positions.
template <bool accumulate>
TRIREME_AMX void gather(
    float* sums, const Unit* rows, const Unit* channels, const Head& head, Part part) {
  for (std::int64_t c = 0; c < head.channels; c += block_edge)
    for (std::int64_t r = 0; r < tile; r += block_edge) {
      const std::int64_t begin = part == Part::upper ? r / 2 : 0;
      const std::int64_t end = part == Part::lower ? (r + block_edge) / 2 : pairs;
      multiply_tiles<accumulate>(sums + r * head.channels + c, head.channels,
                                 rows + r * pairs + begin, line_bytes,
                                 channels + c * head.time / 2 + begin * panel_columns, end - begin);
    }
}

/// Columns [16 v, 16 v + 16) of a row of 64 scores, scaled; what does not count is -infinity.
TRIREME_AMX_INLINE __m512 scaled_scores(const float* row,
                                        int v,
                                        std::int64_t valid,
                                        const __m512& scale) {
  const __mmask16 keep = avx512::counted(v, valid);
  return _mm512_mask_mul_ps(_mm512_set1_ps(-__builtin_inff()), keep, scale,
                            _mm512_maskz_loadu_ps(keep, row + v * lanes));
}

/// Rows of 64 scores become exponentials in bf16, against the rows' running maximum and sum;
/// shrink[r] is what the row's earlier sums are to be multiplied by.
TRIREME_AMX void softmax(Bf16* to,
                         const float* scores,
                         float* maximum,
                         float* total,
                         float* shrink,
                         float scale,
                         bool diagonal) {
  const __m512 factor = _mm512_set1_ps(scale);
  alignas(64) std::array<float, tile> per_row;
  for (std::int64_t r = 0; r < tile; ++r) {
    const float* row = scores + r * tile;
    const std::int64_t valid = diagonal ? r + 1 : tile;
    const __m512 left =
        _mm512_max_ps(scaled_scores(row, 0, valid, factor), scaled_scores(row, 1, valid, factor));
    const __m512 right =
        _mm512_max_ps(scaled_scores(row, 2, valid, factor), scaled_scores(row, 3, valid, factor));
    per_row[static_cast<std::size_t>(r)] = _mm512_reduce_max_ps(_mm512_max_ps(left, right));
  }
  for (std::int64_t r = 0; r < tile; r += lanes) {
    const __m512 before = _mm512_load_ps(maximum + r);
    const __m512 now = _mm512_max_ps(before, _mm512_load_ps(per_row.data() + r));
    _mm512_store_ps(maximum + r, now);
    _mm512_store_ps(shrink + r, avx512::exponential(_mm512_sub_ps(before, now)));
  }
  for (std::int64_t r = 0; r < tile; ++r) {
    const __m512 base = _mm512_set1_ps(maximum[r]);
    __m512 e[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      const __m512 s = scaled_scores(scores + r * tile, v, diagonal ? r + 1 : tile, factor);
      e[v] = avx512::exponential(_mm512_sub_ps(s, base));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + r * tile + v * lanes),
                          (__m256i)_mm512_cvtneps_pbh(e[v]));
    }
    per_row[static_cast<std::size_t>(r)] =
        _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(e[0], e[1]), _mm512_add_ps(e[2], e[3])));
  }
  for (std::int64_t r = 0; r < tile; r += lanes)
    _mm512_store_ps(total + r,
                    _mm512_fmadd_ps(_mm512_load_ps(total + r), _mm512_load_ps(shrink + r),
                                    _mm512_load_ps(per_row.data() + r)));
}

/// What rows have gathered so far, times their factor each, plus what the last tile brought.
TRIREME_AMX void shrink_and_add(float* sums,
                                const float* more,
                                const float* factors,
                                std::int64_t channels) {
  for (std::int64_t r = 0; r < tile; ++r) {
    const __m512 factor = _mm512_set1_ps(factors[r]);
    for (std::int64_t i = r * channels; i < (r + 1) * channels; i += lanes)
      _mm512_storeu_ps(
          sums + i, _mm512_fmadd_ps(_mm512_loadu_ps(sums + i), factor, _mm512_loadu_ps(more + i)));
  }
}

/// From transposed scores and dP to P and dS = P (dP - delta) in bf16; rows are keys.
TRIREME_AMX void softmax_backward(Bf16* p,
                                  Bf16* ds,
                                  const float* scores,
                                  const float* dp,
                                  const float* log_sums,
                                  const float* delta,
                                  float scale,
                                  bool diagonal) {
  const __m512 factor = _mm512_set1_ps(scale);
#pragma GCC unroll 4
  for (int v = 0; v < vectors; ++v) {
    const __m512 log_sum = _mm512_loadu_ps(log_sums + v * lanes);
    const __m512 mean = _mm512_loadu_ps(delta + v * lanes);
    for (std::int64_t r = 0; r < tile; ++r) {
      const std::int64_t at = r * tile + v * lanes;
      // Queries before this key do not see it.
      const auto keep =
          static_cast<__mmask16>(diagonal ? ~avx512::first_lanes(r - v * lanes) : 0xffffU);
      const __m512 e = avx512::exponential(
          _mm512_fmsub_ps(_mm512_maskz_loadu_ps(keep, scores + at), factor, log_sum));
      const __m512 d = _mm512_mul_ps(e, _mm512_sub_ps(_mm512_maskz_loadu_ps(keep, dp + at), mean));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + at),
                          (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_mov_ps(keep, e)));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(ds + at),
                          (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_mov_ps(keep, d)));
    }
  }
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

TRIREME_AMX void forward(
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
      stored();
      score(scores, q, 2 * head.qkv_stride, k + key * head.channels / 2, head, seen);
      softmax(reinterpret_cast<Bf16*>(p), scores, maximum.data(), total.data(), shrink.data(),
              head.scale, key == query);
      stored();
      const Unit* values = v + key / 2 * panel_columns;
      gather<false>(key == 0 ? sums : more, p, values, head, seen);
      if (key > 0)
        shrink_and_add(sums, more, shrink.data(), head.channels);
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

TRIREME_AMX void backward(const Gradient& g, const Head& head, Scratch scratch) {
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
      stored();
      score(scores, k_rows, 2 * head.qkv_stride, q_positions + positions, head, seen);
      score(dp, v_rows, 2 * head.qkv_stride, dout_positions + positions, head, seen);
      softmax_backward(reinterpret_cast<Bf16*>(p), reinterpret_cast<Bf16*>(ds), scores, dp,
                       g.lse + query, delta + query, head.scale, diagonal);
      const Stored turned{reinterpret_cast<const std::byte*>(ds), tile, tile};
      for (std::int64_t r = 0; r < tile; r += tile_rows)
        pack_rows(ds_rows + r * pairs, pairs, turned, r, 0, pairs);
      stored();
      gather<true>(dv, p, dout_channels + channels, head, seen);
      gather<true>(dk, ds, q_channels + channels, head, seen);
      gather<true>(dq + query * C, ds_rows, k_channels + key / 2 * panel_columns, head,
                   diagonal ? Part::lower : Part::all);
    }
    Bf16* to = g.dqkv + key * head.qkv_stride + part;
    avx512::store_tile(to, head.qkv_stride, dk, C, tile, C, head.scale);
    avx512::store_tile(to + part, head.qkv_stride, dv, C, tile, C, 1.0F);
  }
  avx512::store_tile(g.dqkv, head.qkv_stride, dq, C, head.time, C, head.scale);
}

class AttentionAmx final : public Attention::Implementation {
 public:
  AttentionAmx(device::Device& device,
               const AttentionShape& shape,
               std::unique_ptr<Attention::Implementation> general)
      : shape_(shape),
        threads_(omp_get_max_threads()),
        thread_units_((Scratch::units(shape) + 1023) / 1024 * 1024),
        scratch_(device.allocate(static_cast<std::size_t>(thread_units_ * threads_) * sizeof(Unit),
                                 "attention scratch")),
        general_(std::move(general)) {}

  void forward(
      View out, View lse, ConstView qkv, const Dropout& dropout, device::Stream& stream) override {
    if (dropout.active()) {
      general_->forward(out, lse, qkv, dropout, stream);
      return;
    }
    device::cpu::stream_of(stream).run(
        [this, to = out.as<Bf16>(), sums = lse.as<float>(), from = qkv.as<Bf16>()] {
          for_heads([&](std::int64_t i, std::int64_t first, std::int64_t packed, Scratch mine) {
            amx::forward(to + first, sums + i * shape_.time, from + packed, head(), mine);
          });
        });
  }

  void backward(View dqkv,
                ConstView dout,
                ConstView qkv,
                ConstView out,
                ConstView lse,
                const Dropout& dropout,
                device::Stream& stream) override {
    if (dropout.active()) {
      general_->backward(dqkv, dout, qkv, out, lse, dropout, stream);
      return;
    }
    const Gradient all{dqkv.as<Bf16>(), dout.as<Bf16>(), qkv.as<Bf16>(), out.as<Bf16>(),
                       lse.as<float>()};
    device::cpu::stream_of(stream).run([this, all] {
      for_heads([&](std::int64_t i, std::int64_t first, std::int64_t packed, Scratch mine) {
        amx::backward({all.dqkv + packed, all.dout + first, all.qkv + packed, all.out + first,
                       all.lse + i * shape_.time},
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
      const Tiles tiles;
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
         available();
}

std::unique_ptr<Attention::Implementation> make_attention(
    device::Device& device,
    const AttentionShape& shape,
    std::unique_ptr<Attention::Implementation> general) {
  return std::make_unique<AttentionAmx>(device, shape, std::move(general));
}

}  // namespace trireme::ops::cpu::amx
#else
namespace trireme::ops::cpu::amx {

bool attends(const AttentionShape& /*shape*/) {
  return false;
}

std::unique_ptr<Attention::Implementation> make_attention(
    device::Device& /*device*/,
    const AttentionShape& shape,
    std::unique_ptr<Attention::Implementation> general) {
  TRIREME_EXPECT(false, "AMX attention of {} on another processor", name(shape.dtype));
  return general;
}

}  // namespace trireme::ops::cpu::amx
#endif
