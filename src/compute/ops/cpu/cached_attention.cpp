// SPDX-License-Identifier: Apache-2.0
// A run of rows is consecutive positions of one sequence within one tile of 64. One task per run
// and head computes the same as a task of attention.cpp for these rows, in the same order, but
// reads keys and values that are already in the tile layout. A run is one row while text is
// generated, and up to 64 while a prompt is read.
#include "ops/cached_attention.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/attention_backend.hpp"
#include "ops/cpu/attention_tiles.hpp"
#include "ops/dispatch.hpp"

namespace trireme::ops::cpu {
namespace {

/// Where the tiles of one sequence and head are: [tiles][channels, tile] keys and, next to each,
/// [tile, width] values.
struct CacheLayout {
  std::int64_t channels, width, tiles;

  explicit CacheLayout(const AttentionShape& s)
      : channels(s.head_channels),
        width(rounded(s.head_channels)),
        tiles(divided_up(s.time, tile)) {}
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

/// Stores the keys and values of one head of a row in the tile of their position.
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
void attend(const CachedAttention& call, const auto& scratch) {
  const AttentionShape& s = call.shape;
  const CacheLayout layout(s);
  T* out = call.out.as<T>();
  const T* qkv = call.qkv.as<T>();
  const auto* sequences = call.sequences.as<std::int32_t>();
  const auto* positions = call.positions.as<std::int32_t>();
  const auto* starts = call.starts.as_optional<std::int32_t>();
  const std::int64_t rows = call.sequences.elements;
  const std::int64_t H = s.heads, D = s.head_channels, row = H * D;
  const std::int64_t G = s.key_value_heads(), width = s.packed_width();
  for (std::int64_t r = 0; r < rows; ++r) {
    TRIREME_EXPECT(sequences[r] < s.batch, "sequence {} of a cache of {}", sequences[r], s.batch);
    TRIREME_EXPECT(sequences[r] < 0 || (positions[r] >= 0 && positions[r] < s.time),
                   "position {} of a cache of {}", positions[r], s.time);
    if (sequences[r] < 0)
      std::fill_n(out + r * row, row, T{});
  }
  // Of a head of keys.
  const auto cache_of = [&](std::int64_t sequence, std::int64_t g) {
    return call.cache.as<float>() + (sequence * G + g) * layout.head_elements();
  };
  const std::vector<Run> runs = runs_of(sequences, positions, rows);
#pragma omp parallel for schedule(static) if (G > 1)
  for (std::int64_t g = 0; g < G; ++g)
    for (const Run& one : runs)
      for (std::int64_t r = 0; r < one.rows; ++r) {
        const T* k = qkv + (one.row + r) * width + row + g * D;
        float* own = cache_of(one.sequence, g);
        const std::int64_t position = one.position + r, place = position % tile;
        store_kernel(layout.keys(own, position) + place,
                     layout.values(own, position) + place * layout.width, k, k + G * D, D);
      }
  auto* const kernel = TRIREME_BEST(attend_run<T>);
  const auto tasks = static_cast<std::int64_t>(runs.size()) * H;
#pragma omp parallel for schedule(dynamic) if (tasks > 1)
  for (std::int64_t task = 0; task < tasks; ++task) {
    const Run& one = runs[static_cast<std::size_t>(task / H)];
    const std::int64_t h = task % H;
    AttentionHead head = head_of(s, 0, h, nullptr);
    head.starts = starts == nullptr ? nullptr : starts + one.row;
    head.starts_at = one.position;
    kernel(out + one.row * row + h * D, qkv + one.row * width + h * D,
           cache_of(one.sequence, h / s.group()), &layout, &head, &one,
           reinterpret_cast<float*>(scratch()));
  }
}

}  // namespace
}  // namespace trireme::ops::cpu

namespace trireme::ops {

bool has_cached_attention(const device::Device& device) {
  return device.kind() == device::Kind::cpu;
}

void require_cached_attention(const device::Device& device) {
  if (!has_cached_attention(device))
    throw DeviceError(device.description(), "attention to kept keys and values",
                      "there is a body for CPUs alone");
}

std::int64_t cache_elements(const AttentionShape& shape) {
  expect_valid(shape);
  return shape.batch * shape.key_value_heads() * cpu::CacheLayout(shape).head_elements();
}

void run(const CachedAttention& call, device::Stream& stream) {
  require_cached_attention(stream.device());
  const AttentionShape& s = call.shape;
  const std::int64_t rows = call.sequences.elements;
  TRIREME_EXPECT(rows >= 1, "cached attention of {} rows", rows);
  expect_operands(call.name, {{"sequences", call.sequences, rows, DType::i32},
                              {"positions", call.positions, rows, DType::i32},
                              {"starts", call.starts, s.documents ? rows : 0, DType::i32},
                              {"qkv", call.qkv, rows * s.packed_width(), s.dtype},
                              {"out", call.out, rows * s.heads * s.head_channels, s.dtype},
                              {"cache", call.cache, cache_elements(s), DType::f32}});
  const std::int64_t elements = cpu::AttentionScratch::elements(cpu::rounded(s.head_channels));
  with_float_type(s.dtype, [&](auto zero) {
    cpu::run_with_scratch(stream, elements * 4, [call](const auto& scratch) {
      cpu::attend<decltype(zero)>(call, scratch);
    });
  });
}

}  // namespace trireme::ops
