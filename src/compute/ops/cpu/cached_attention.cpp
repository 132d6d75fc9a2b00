// SPDX-License-Identifier: Apache-2.0
// A run of rows is consecutive positions of one sequence within one tile of 64: one task per run
// and head, which does what a task of attention.cpp does with these rows, in the same order, but
// finds keys and values as it needs them. While text is generated a run is one row; while a prompt
// is read, up to 64.
#include "ops/cpu/cached_attention.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include <omp.h>

#include "base/error.hpp"
#include "device/buffer.hpp"
#include "device/cpu/cpu_stream.hpp"

#include "ops/cpu/attention_tiles.hpp"

namespace trireme::ops::cpu {
namespace {

/// Where the tiles of one sequence and head are: [tiles][channels, tile] keys and, next to each,
/// [tile, width] values.
struct CacheLayout {
  std::int64_t channels, width, tiles;

  explicit CacheLayout(const CachedAttentionShape& s)
      : channels(s.head_channels),
        width(rounded(s.head_channels)),
        tiles((s.positions + tile - 1) / tile) {}
  [[nodiscard]] std::int64_t tile_elements() const { return tile * (channels + width); }
  [[nodiscard]] std::int64_t head_elements() const { return tiles * tile_elements(); }
  [[nodiscard]] float* keys(float* head, std::int64_t position) const {
    return head + position / tile * tile_elements();
  }
  [[nodiscard]] float* values(float* head, std::int64_t position) const {
    return keys(head, position) + tile * channels;
  }
};

/// Rows [row, row + rows) of a call, which are the positions from `position` on.
struct Run {
  std::int64_t row, rows, sequence, position;
};

std::vector<Run> runs_of(const std::int32_t* sequences,
                         const std::int32_t* positions,
                         std::int64_t rows) {
  std::vector<Run> runs;
  for (std::int64_t r = 0; r < rows; ++r) {
    if (sequences[r] < 0)
      continue;
    if (!runs.empty()) {
      Run& last = runs.back();
      if (last.row + last.rows == r && last.sequence == sequences[r] &&
          last.position + last.rows == positions[r] && positions[r] % tile != 0) {
        ++last.rows;
        continue;
      }
    }
    runs.push_back({r, 1, sequences[r], positions[r]});
  }
  return runs;
}

/// The keys and values of one head of a row, into the tile of their position.
template <class T>
TRIREME_CLONES void store_kernel(
    float* keys, float* values, const T* k, const T* v, std::int64_t channels) {
  for (std::int64_t c = 0; c < channels; ++c) keys[c * tile] = to_float(k[c]);
#pragma omp simd
  for (std::int64_t c = 0; c < channels; ++c) values[c] = to_float(v[c]);
}

}  // namespace
}  // namespace trireme::ops::cpu

#define TRIREME_KERNELS "ops/cpu/cached_attention_kernels.hpp"
#include "ops/cpu/for_each_level.hpp"

namespace trireme::ops::cpu {
namespace {

template <class T>
class CachedAttentionCpu final : public CachedAttention::Implementation {
 public:
  CachedAttentionCpu(device::Device& device, const CachedAttentionShape& shape)
      : shape_(shape),
        layout_(shape),
        threads_(omp_get_max_threads()),
        scratch_elements_(rounded(AttentionScratch::elements(layout_.width))),
        scratch_(
            device.allocate(static_cast<std::size_t>(scratch_elements_ * threads_) * sizeof(float),
                            "attention scratch")) {}

  void forward(const CachedAttentionCall& call, device::Stream& stream) override {
    device::cpu::stream_of(stream).run([this, call] { run(call); });
  }

 private:
  /// Of a head of keys.
  [[nodiscard]] float* head_of(float* cache, std::int64_t sequence, std::int64_t g) const {
    return cache + (sequence * shape_.key_value_heads() + g) * layout_.head_elements();
  }

  void run(const CachedAttentionCall& call) const {
    T* out = call.out.as<T>();
    float* cache = call.cache.as<float>();
    const T* qkv = call.qkv.as<T>();
    const auto* sequences = call.sequences.as<std::int32_t>();
    const auto* positions = call.positions.as<std::int32_t>();
    const auto* starts = call.starts.as_optional<std::int32_t>();
    const std::int64_t rows = call.sequences.elements;
    const std::int64_t H = shape_.heads, D = shape_.head_channels, row = H * D;
    const std::int64_t G = shape_.key_value_heads(), width = shape_.packed_width();
    for (std::int64_t r = 0; r < rows; ++r) {
      TRIREME_EXPECT(sequences[r] < shape_.sequences, "sequence {} of a cache of {}", sequences[r],
                     shape_.sequences);
      TRIREME_EXPECT(sequences[r] < 0 || (positions[r] >= 0 && positions[r] < shape_.positions),
                     "position {} of a cache of {}", positions[r], shape_.positions);
      if (sequences[r] < 0)
        std::fill_n(out + r * row, row, T{});
    }
    const std::vector<Run> runs = runs_of(sequences, positions, rows);
    const int threads = std::min(threads_, omp_get_max_threads());
    const AttentionHead head{.time = shape_.positions,
                             .channels = D,
                             .width = layout_.width,
                             .qkv_stride = width,
                             .out_stride = row,
                             .to_key = row,
                             .to_value = G * D,
                             .scale = 1.0F / std::sqrt(static_cast<float>(D)),
                             .window = shape_.window};
#pragma omp parallel for schedule(static) num_threads(threads) if (G > 1)
    for (std::int64_t g = 0; g < G; ++g)
      for (const Run& one : runs)
        for (std::int64_t r = 0; r < one.rows; ++r) {
          const T* k = qkv + (one.row + r) * width + row + g * D;
          float* own = head_of(cache, one.sequence, g);
          const std::int64_t position = one.position + r, place = position % tile;
          store_kernel(layout_.keys(own, position) + place,
                       layout_.values(own, position) + place * layout_.width, k, k + G * D, D);
        }
    const auto tasks = static_cast<std::int64_t>(runs.size()) * H;
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (tasks > 1)
    for (std::int64_t task = 0; task < tasks; ++task) {
      const Run& one = runs[static_cast<std::size_t>(task / H)];
      const std::int64_t h = task % H;
      AttentionHead mine = head;
      mine.starts = starts == nullptr ? nullptr : starts + one.row;
      mine.starts_at = one.position;
      kernel_(out + one.row * row + h * D, qkv + one.row * width + h * D,
              head_of(cache, one.sequence, h / shape_.group()), &layout_, &mine, &one,
              scratch_.view(DType::f32).as<float>() + omp_get_thread_num() * scratch_elements_);
    }
  }

  CachedAttentionShape shape_;
  CacheLayout layout_;
  int threads_;  // at construction; more are not used
  decltype(&plain::attend_run<T>) kernel_ = TRIREME_BEST(attend_run<T>);
  std::int64_t scratch_elements_;  // per thread
  device::Buffer scratch_;
};

}  // namespace

std::int64_t cache_elements(const CachedAttentionShape& shape) {
  return shape.sequences * shape.key_value_heads() * CacheLayout(shape).head_elements();
}

std::unique_ptr<CachedAttention::Implementation> make_cached_attention(
    device::Device& device, const CachedAttentionShape& shape) {
  if (shape.dtype == DType::bf16)
    return std::make_unique<CachedAttentionCpu<Bf16>>(device, shape);
  return std::make_unique<CachedAttentionCpu<float>>(device, shape);
}

}  // namespace trireme::ops::cpu
