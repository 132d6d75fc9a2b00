// SPDX-License-Identifier: Apache-2.0
// Tiles of 64 queries by 64 keys, in fp32, in scratch that each thread owns. Forward: one task per
// (sample, head, query tile), with the running maximum and sum of Dao et al. 2022, algorithm 1.
// Backward: one task per (sample, head of keys), key tiles outside, query tiles inside, so dK and
// dV of a tile finish together and dQ is added up in the order of the key tiles. Query heads that
// share keys follow one another, and their dK and dV are added up in fp32.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <omp.h>

#include "device/buffer.hpp"
#include "device/cpu/cpu_stream.hpp"

#include "ops/attention_backend.hpp"
#include "ops/cpu/attention_tiles.hpp"
#include "ops/cpu/x86/bf16_attention.hpp"

namespace trireme::ops {
namespace cpu {
namespace {

template <Level level, class T>
TRIREME_INLINE void forward_body(T* out,
                                 float* lse,
                                 const T* qkv,
                                 const AttentionHead* head_at,
                                 const Dropout* dropout,
                                 std::int64_t query,
                                 float* scratch) {
  const AttentionHead head = *head_at;
  const AttentionScratch s(scratch, head.width);
  const std::int64_t rows = std::min(tile, head.time - query);
  load_rows<level>(s.q, qkv + query * head.qkv_stride, head.qkv_stride, rows, head, head.scale);
  alignas(64) std::array<float, tile> maximum, total;
  maximum.fill(-std::numeric_limits<float>::infinity());
  total.fill(0);
  const std::int64_t first = head.first_tile(query);
  for (std::int64_t key = first; key <= query; key += tile) {
    const std::int64_t keys = std::min(tile, head.time - key);
    const bool diagonal = key == query;
    const T* k = qkv + key * head.qkv_stride + head.to_key;
    load_transposed<level>(s.k, k, head.qkv_stride, keys, head);
    load_rows<level>(s.v, k + head.to_value, head.qkv_stride, keys, head, 1.0F);
    tile_product<level, false>(s.scores, tile, {s.q, head.width}, {s.k, tile}, rows, tile,
                               head.channels, diagonal ? Triangle::result : Triangle::none, false);
    hide_unseen(s.scores, rows, query, key, head);
    softmax_tile<level>(s, maximum.data(), total.data(), rows, query, key, head, *dropout);
    tile_product<level, false>(s.sums, head.width, {s.scores, tile}, {s.v, head.width}, rows,
                               head.width, keys, diagonal ? Triangle::depth_to_row : Triangle::none,
                               key > first);
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto i = static_cast<std::size_t>(r);
    lse[query + r] = maximum[i] + std::log(total[i]);
    store_rows<level>(out + (query + r) * head.out_stride, 0, s.sums + r * head.width, 1, head,
                      1.0F / total[i]);
  }
}

struct BackwardScratch {
  float *q, *k, *k_transposed, *v_transposed, *dout, *dk, *dv;  // tiles of width
  float *scores, *dscores;                                      // [tile, tile]
  float *dq, *delta;                                            // [time, width], [time]
  [[nodiscard]] static std::int64_t elements(std::int64_t time, std::int64_t width) {
    return 7 * tile * width + 2 * tile * tile + time * width + rounded(time);
  }
  BackwardScratch(float* at, std::int64_t time, std::int64_t width)
      : q(at),
        k(q + tile * width),
        k_transposed(k + tile * width),
        v_transposed(k_transposed + tile * width),
        dout(v_transposed + tile * width),
        dk(dout + tile * width),
        dv(dk + tile * width),
        scores(dv + tile * width),
        dscores(scores + tile * tile),
        dq(dscores + tile * tile),
        delta(dq + time * width) {}
};

/// From scores and dP to P (dropped) and dS = P (dP - delta), in place.
template <Level level>
TRIREME_INLINE void softmax_backward_tile(const BackwardScratch& s,
                                          const float* lse,
                                          std::int64_t rows,
                                          std::int64_t query,
                                          std::int64_t key,
                                          const AttentionHead& head,
                                          const Dropout& dropout) {
#if defined(__x86_64__)
  if constexpr (level == Level::avx512) {
    if (!dropout.active()) {
      avx512::softmax_backward_rows(s.scores, s.dscores, lse + query, s.delta + query, rows,
                                    query == key);
      return;
    }
  }
#endif
  DropoutRun run;
  for (std::int64_t r = 0; r < rows; ++r) {
    float* p = s.scores + r * tile;
    float* d = s.dscores + r * tile;
    const std::int64_t valid = query == key ? r + 1 : tile;
    const std::int64_t columns = rounded(valid);
    const float log_sum = lse[query + r], delta = s.delta[query + r];
    for (std::int64_t c = valid; c < columns; ++c) {
      p[c] = -std::numeric_limits<float>::infinity();
      d[c] = 0;
    }
    if (dropout.active()) {
      const float* factors = dropout_run(
          run, dropout, head.sample, head.first_element + (query + r) * head.time + key, columns);
#pragma omp simd
      for (std::int64_t c = 0; c < columns; ++c) {
        const float e = fast_exp(p[c] - log_sum);
        d[c] = e * (d[c] * factors[c] - delta);
        p[c] = e * factors[c];
      }
    } else {
#pragma omp simd
      for (std::int64_t c = 0; c < columns; ++c) {
        const float e = fast_exp(p[c] - log_sum);
        d[c] = e * (d[c] - delta);
        p[c] = e;
      }
    }
    for (std::int64_t c = columns; c < std::min(tile, columns + most_lanes); ++c) p[c] = d[c] = 0;
  }
}

template <class T>
struct HeadGradient {
  T* dqkv;
  const T* dout;
  const T* qkv;
  const T* out;
  const float* lse;
  /// [2, time, width]: dK and dV of a group of heads, which the first one sets and the last one
  /// stores. Null: the keys are not shared.
  float* shared;
  bool first, last;
};

/// A finished tile of dK or dV into the packed gradient, or to the sums of its group.
template <Level level, class T>
TRIREME_INLINE void finish_tile(T* to,
                                const float* tile_sums,
                                float* shared,
                                std::int64_t rows,
                                const HeadGradient<T>& g,
                                const AttentionHead& head) {
  if (g.shared == nullptr) {
    store_rows<level>(to, head.qkv_stride, tile_sums, rows, head, 1.0F);
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
    store_rows<level>(to, head.qkv_stride, shared, rows, head, 1.0F);
}

template <Level level, class T>
TRIREME_INLINE void row_products(float* delta,
                                 const HeadGradient<T>& g,
                                 const AttentionHead& head) {
#if defined(__x86_64__)
  if constexpr (level == Level::avx512) {
    avx512::multiply_rows(delta, g.dout, g.out, head.out_stride, head.time, head.channels);
    return;
  }
#endif
  for (std::int64_t t = 0; t < head.time; ++t) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t c = 0; c < head.channels; ++c)
      sum += to_float(g.dout[t * head.out_stride + c]) * to_float(g.out[t * head.out_stride + c]);
    delta[t] = sum;
  }
}

template <Level level, class T>
TRIREME_INLINE void backward_body(const HeadGradient<T>* gradient,
                                  const AttentionHead* head_at,
                                  const Dropout* dropout,
                                  float* scratch) {
  const AttentionHead head = *head_at;
  const HeadGradient<T> g = *gradient;
  const BackwardScratch s(scratch, head.time, head.width);
  const std::int64_t width = head.width, stride = head.qkv_stride;
  row_products<level>(s.delta, g, head);
  std::fill(s.dq, s.dq + head.time * width, 0.0F);
  for (std::int64_t key = 0; key < head.time; key += tile) {
    const std::int64_t keys = std::min(tile, head.time - key);
    const T* k = g.qkv + key * stride + head.to_key;
    load_rows<level>(s.k, k, stride, keys, head, 1.0F);
    load_transposed<level>(s.k_transposed, k, stride, keys, head);
    load_transposed<level>(s.v_transposed, k + head.to_value, stride, keys, head);
    for (std::int64_t query = key; query < head.end_of_queries(key); query += tile) {
      const std::int64_t rows = std::min(tile, head.time - query);
      const bool diagonal = query == key;
      const auto result = diagonal ? Triangle::result : Triangle::none;
      const auto to_row = diagonal ? Triangle::depth_to_row : Triangle::none;
      const auto from_row = diagonal ? Triangle::depth_from_row : Triangle::none;
      load_rows<level>(s.q, g.qkv + query * stride, stride, rows, head, head.scale);
      load_rows<level>(s.dout, g.dout + query * head.out_stride, head.out_stride, rows, head, 1.0F);
      tile_product<level, false>(s.scores, tile, {s.q, width}, {s.k_transposed, tile}, rows, tile,
                                 head.channels, result, false);
      tile_product<level, false>(s.dscores, tile, {s.dout, width}, {s.v_transposed, tile}, rows,
                                 tile, head.channels, result, false);
      hide_unseen(s.scores, rows, query, key, head);
      softmax_backward_tile<level>(s, g.lse, rows, query, key, head, *dropout);
      tile_product<level, true>(s.dv, width, {s.scores, tile}, {s.dout, width}, keys, width, rows,
                                from_row, !diagonal);
      tile_product<level, true>(s.dk, width, {s.dscores, tile}, {s.q, width}, keys, width, rows,
                                from_row, !diagonal);
      tile_product<level, false>(s.dq + query * width, width, {s.dscores, tile}, {s.k, width}, rows,
                                 width, keys, to_row, true);
    }
    T* dk = g.dqkv + key * stride + head.to_key;
    float* dk_shared = g.shared == nullptr ? nullptr : g.shared + key * width;
    float* dv_shared = g.shared == nullptr ? nullptr : dk_shared + head.time * width;
    finish_tile<level>(dk, s.dk, dk_shared, keys, g, head);
    finish_tile<level>(dk + head.to_value, s.dv, dv_shared, keys, g, head);
  }
  store_rows<level>(g.dqkv, stride, s.dq, head.time, head, head.scale);
}

template <class T>
TRIREME_CLONES_BELOW_AVX512 void forward_kernel(T* out,
                                                float* lse,
                                                const T* qkv,
                                                const AttentionHead* head,
                                                const Dropout* dropout,
                                                std::int64_t query,
                                                float* scratch) {
  forward_body<Level::any>(out, lse, qkv, head, dropout, query, scratch);
}

template <class T>
TRIREME_CLONES_BELOW_AVX512 void backward_kernel(const HeadGradient<T>* gradient,
                                                 const AttentionHead* head,
                                                 const Dropout* dropout,
                                                 float* scratch) {
  backward_body<Level::any>(gradient, head, dropout, scratch);
}

#if defined(__x86_64__)
template <class T>
TRIREME_AVX512 void forward_kernel_avx512(T* out,
                                          float* lse,
                                          const T* qkv,
                                          const AttentionHead* head,
                                          const Dropout* dropout,
                                          std::int64_t query,
                                          float* scratch) {
  forward_body<Level::avx512>(out, lse, qkv, head, dropout, query, scratch);
}

template <class T>
TRIREME_AVX512 void backward_kernel_avx512(const HeadGradient<T>* gradient,
                                           const AttentionHead* head,
                                           const Dropout* dropout,
                                           float* scratch) {
  backward_body<Level::avx512>(gradient, head, dropout, scratch);
}
#endif

template <class T>
class AttentionCpu final : public Attention::Implementation {
 public:
  AttentionCpu(device::Device& device, const AttentionShape& shape)
      : shape_(shape),
        threads_(omp_get_max_threads()),
        width_(rounded(shape.head_channels)),
        backward_elements_(BackwardScratch::elements(shape.time, width_)),
        scratch_elements_(rounded(
            std::max(AttentionScratch::elements(width_),
                     backward_elements_ + (shape.group() > 1 ? 2 * shape.time * width_ : 0)))),
        scratch_(
            device.allocate(static_cast<std::size_t>(scratch_elements_ * threads_) * sizeof(float),
                            "attention scratch")) {
#if defined(__x86_64__)
    if (has_avx512()) {
      forward_ = forward_kernel_avx512<T>;
      backward_ = backward_kernel_avx512<T>;
    }
#endif
  }

  void forward(const AttentionForward& call, device::Stream& stream) override {
    device::cpu::stream_of(stream).run([this, call] { run_forward(call); });
  }

  void backward(const AttentionBackward& call, device::Stream& stream) override {
    device::cpu::stream_of(stream).run([this, call] { run_backward(call); });
  }

  [[nodiscard]] std::size_t scratch_bytes() const override {
    return scratch_.bytes();
  }

 private:
  [[nodiscard]] float* scratch() const {
    return scratch_.view(DType::f32).as<float>() + omp_get_thread_num() * scratch_elements_;
  }
  [[nodiscard]] int threads() const {
    return std::min(threads_, omp_get_max_threads());
  }

  void run_forward(const AttentionForward& call) const {
    T* out = call.out.as<T>();
    float* lse = call.lse.as<float>();
    const T* qkv = call.qkv.as<T>();
    const auto* starts = call.starts.as_optional<std::int32_t>();
    const auto& s = shape_;
    const std::int64_t tiles = (s.time + tile - 1) / tile;
    // Long query tiles first.
#pragma omp parallel for schedule(dynamic) num_threads(threads())
    for (std::int64_t i = 0; i < s.batch * s.heads * tiles; ++i) {
      const std::int64_t query = (tiles - 1 - i / (s.batch * s.heads)) * tile;
      const std::int64_t sample = i % (s.batch * s.heads) / s.heads, h = i % s.heads;
      const AttentionHead head = head_of(s, sample, h, starts);
      const HeadPlace at = place_of(s, sample, h);
      forward_(out + at.out, lse + at.lse, qkv + at.qkv, &head, &call.dropout, query, scratch());
    }
  }

  void run_backward(const AttentionBackward& call) const {
    const HeadGradient<T> all{call.dqkv.as<T>(),
                              call.dout.as<T>(),
                              call.qkv.as<T>(),
                              call.out.as<T>(),
                              call.lse.as<float>(),
                              nullptr,
                              true,
                              true};
    const auto* starts = call.starts.as_optional<std::int32_t>();
    const auto& s = shape_;
#pragma omp parallel for schedule(dynamic) num_threads(threads())
    for (std::int64_t i = 0; i < s.batch * s.key_value_heads(); ++i) {
      const std::int64_t sample = i / s.key_value_heads();
      const std::int64_t begin = i % s.key_value_heads() * s.group(), end = begin + s.group();
      for (std::int64_t h = begin; h < end; ++h) {
        const AttentionHead head = head_of(s, sample, h, starts);
        const HeadPlace at = place_of(s, sample, h);
        const HeadGradient<T> mine{
            all.dqkv + at.qkv, all.dout + at.out,
            all.qkv + at.qkv,  all.out + at.out,
            all.lse + at.lse,  s.group() > 1 ? scratch() + backward_elements_ : nullptr,
            h == begin,        h + 1 == end};
        backward_(&mine, &head, &call.dropout, scratch());
      }
    }
  }

  AttentionShape shape_;
  int threads_;  // at construction; more are not used
  decltype(&forward_kernel<T>) forward_ = forward_kernel<T>;
  decltype(&backward_kernel<T>) backward_ = backward_kernel<T>;
  std::int64_t width_;
  std::int64_t backward_elements_;  // without the sums of a group
  std::int64_t scratch_elements_;   // per thread
  device::Buffer scratch_;
};

}  // namespace
}  // namespace cpu

std::unique_ptr<Attention::Implementation> make_attention_cpu(device::Device& device,
                                                              const AttentionShape& shape) {
  if (shape.dtype == DType::f32)
    return std::make_unique<cpu::AttentionCpu<float>>(device, shape);
  std::unique_ptr<Attention::Implementation> general;
  const bool tiles = cpu::bf16_attention::attends(shape);
  if (shape.drops || !tiles)
    general = std::make_unique<cpu::AttentionCpu<Bf16>>(device, shape);
  return tiles ? cpu::bf16_attention::make_attention(device, shape, std::move(general))
               : std::move(general);
}

}  // namespace trireme::ops
