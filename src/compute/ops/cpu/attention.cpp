// SPDX-License-Identifier: Apache-2.0
// Tiles of 64 queries by 64 keys, in fp32, in scratch of each thread. Forward: one task per
// (sample, head, query tile), with the running maximum and sum of Dao et al. 2022, algorithm 1.
// Backward: one task per (sample, key head), with key tiles in the outer loop and query tiles in
// the inner one. So dK and dV of a tile finish together, and dQ is summed in the order of the key
// tiles. Query heads that share keys are processed in order; their dK and dV are summed in fp32.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "ops/attention_backend.hpp"
#include "ops/cpu/attention_tiles.hpp"
#include "ops/cpu/x86/bf16_attention.hpp"

namespace trireme::ops {
namespace cpu {
namespace {

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

template <class T>
struct HeadGradient {
  T* dqkv;
  const T* dout;
  const T* qkv;
  const T* out;
  const float* lse;
  /// [2, time, width]: dK and dV of a group of heads; the first head sets and the last one stores
  /// them. Null: the keys are not shared.
  float* shared;
  bool first, last;
};

}  // namespace
}  // namespace cpu
}  // namespace trireme::ops

#define TRIREME_KERNELS "ops/cpu/attention_kernels.hpp"
#include "ops/cpu/for_each_level.hpp"

namespace trireme::ops {
namespace cpu {
namespace {

template <class T>
class AttentionCpu final : public Attention::Implementation {
 public:
  explicit AttentionCpu(const AttentionShape& shape)
      : shape_(shape),
        width_(rounded(shape.head_channels)),
        backward_elements_(BackwardScratch::elements(shape.time, width_)) {}

  void forward(const AttentionForward& call, device::Stream& stream) override {
    run_with_scratch(stream, AttentionScratch::elements(width_) * 4,
                     [this, call](const auto& scratch) { run_forward(call, scratch); });
  }

  void backward(const AttentionBackward& call, device::Stream& stream) override {
    const std::int64_t shared = shape_.group() > 1 ? 2 * shape_.time * width_ : 0;
    run_with_scratch(stream, (backward_elements_ + shared) * 4,
                     [this, call](const auto& scratch) { run_backward(call, scratch); });
  }

 private:
  void run_forward(const AttentionForward& call, const auto& scratch) const {
    const auto* starts = call.starts.as_optional<std::int32_t>();
    const auto& s = shape_;
    const std::int64_t tiles = (s.time + tile - 1) / tile;
    // Long query tiles first.
#pragma omp parallel for schedule(dynamic)
    for (std::int64_t i = 0; i < s.batch * s.heads * tiles; ++i) {
      const std::int64_t query = (tiles - 1 - i / (s.batch * s.heads)) * tile;
      const std::int64_t sample = i % (s.batch * s.heads) / s.heads, h = i % s.heads;
      const AttentionHead head = head_of(s, sample, h, starts);
      const HeadPlace at = place_of(s, sample, h);
      forward_(call.out.as<T>() + at.out, call.lse.as<float>() + at.lse, call.qkv.as<T>() + at.qkv,
               &head, &call.dropout, query, reinterpret_cast<float*>(scratch()));
    }
  }

  void run_backward(const AttentionBackward& call, const auto& scratch) const {
    const auto* starts = call.starts.as_optional<std::int32_t>();
    const auto& s = shape_;
#pragma omp parallel for schedule(dynamic)
    for (std::int64_t i = 0; i < s.batch * s.key_value_heads(); ++i) {
      const std::int64_t sample = i / s.key_value_heads();
      const std::int64_t begin = i % s.key_value_heads() * s.group(), end = begin + s.group();
      auto* own = reinterpret_cast<float*>(scratch());
      for (std::int64_t h = begin; h < end; ++h) {
        const AttentionHead head = head_of(s, sample, h, starts);
        const HeadPlace at = place_of(s, sample, h);
        const HeadGradient<T> mine{call.dqkv.as<T>() + at.qkv,
                                   call.dout.as<T>() + at.out,
                                   call.qkv.as<T>() + at.qkv,
                                   call.out.as<T>() + at.out,
                                   call.lse.as<float>() + at.lse,
                                   s.group() > 1 ? own + backward_elements_ : nullptr,
                                   h == begin,
                                   h + 1 == end};
        backward_(&mine, &head, &call.dropout, own);
      }
    }
  }

  AttentionShape shape_;
  decltype(&plain::attention_forward<T>) forward_ = TRIREME_BEST(attention_forward<T>);
  decltype(&plain::attention_backward<T>) backward_ = TRIREME_BEST(attention_backward<T>);
  std::int64_t width_;
  std::int64_t backward_elements_;  // without the sums of a group
};

}  // namespace
}  // namespace cpu

std::unique_ptr<Attention::Implementation> make_attention_cpu(const AttentionShape& shape) {
  if (shape.dtype == DType::f32)
    return std::make_unique<cpu::AttentionCpu<float>>(shape);
  std::unique_ptr<Attention::Implementation> general;
  const bool tiles = cpu::bf16_attention::attends(shape);
  if (shape.drops || !tiles)
    general = std::make_unique<cpu::AttentionCpu<Bf16>>(shape);
#if defined(__x86_64__)
  if (tiles)
    return cpu::bf16_attention::make_attention(shape, std::move(general));
#endif
  return general;
}

}  // namespace trireme::ops
