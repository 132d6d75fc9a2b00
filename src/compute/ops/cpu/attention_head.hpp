// SPDX-License-Identifier: Apache-2.0
// One head of attention on a CPU: the places of its rows, and the keys that its queries see. All
// bodies of attention (attention.cpp, cached_attention.cpp, x86/bf16_attention.cpp) use it to
// decide which tiles of 64 queries by 64 keys to skip, so windows and documents have one meaning.
//
// A query sees the keys from first_key(query) to its own position. first_key never decreases from a
// query to the next. So the first key that a tile of queries sees is that of its first query, and
// the queries that see a key are consecutive, beginning at the key's position.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <omp.h>

#include "base/round_up.hpp"
#include "device/cpu/cpu_stream.hpp"

#include "ops/attention.hpp"
#include "ops/cpu/loops.hpp"

namespace trireme::ops::cpu {

inline constexpr std::int64_t tile = 64;

/// Rounded up to whole registers of fp32.
constexpr std::int64_t rounded(std::int64_t n) {
  return rounded_up(n, 16);
}

/// Runs work(scratch) in stream order; scratch() is that of the calling thread, of this size.
template <class Work>
void run_with_scratch(device::Stream& stream, std::int64_t bytes, Work work) {
  device::cpu::Stream* on = &device::cpu::stream_of(stream);
  on->run([on, bytes, work] {
    device::cpu::Workspace& workspace = on->workspace();
    workspace.reserve({.per_thread = bytes, .threads = omp_get_max_threads()});
    work([&workspace] { return workspace.of_thread(omp_get_thread_num()); });
  });
}

/// One (sample, head) of the packed tensor and of the output.
struct AttentionHead {
  std::int64_t time, channels, width;  // width: channels rounded up to whole registers
  std::int64_t qkv_stride, out_stride;
  std::int64_t to_key, to_value;  // from a position's query to its key, from there to its value
  float scale;
  std::int64_t window = 0;         // positions that a query sees; 0: all up to its own
  std::int64_t sample = 0;         // batch row, for dropout
  std::int64_t first_element = 0;  // dropout element of (t, s) = (0, 0)
  // Where the document of each query begins, from query `starts_at` on; null: all see all.
  const std::int32_t* starts = nullptr;
  std::int64_t starts_at = 0;

  [[nodiscard]] TRIREME_INLINE std::int64_t first_key(std::int64_t query) const {
    const std::int64_t first = window > 0 && query >= window ? query - window + 1 : 0;
    return starts != nullptr ? std::max<std::int64_t>(first, starts[query - starts_at]) : first;
  }
  /// The start of the first tile of which the query sees a key.
  [[nodiscard]] TRIREME_INLINE std::int64_t first_tile(std::int64_t query) const {
    return first_key(query) / tile * tile;
  }
  /// One past the last query that sees a key of the tile at `key`. Requires: starts of all queries.
  [[nodiscard]] TRIREME_INLINE std::int64_t end_of_queries(std::int64_t key) const {
    std::int64_t end = window > 0 && window < time ? std::min(time, key + tile - 1 + window) : time;
    if (starts == nullptr)
      return end;
    for (std::int64_t begin = key; begin < end;) {
      const std::int64_t middle = begin + (end - begin) / 2;
      if (starts[middle] < key + tile)
        begin = middle + 1;
      else
        end = middle;
    }
    return end;
  }
};

/// Query head `h` of batch row `sample`; `starts` of all rows, or null.
inline AttentionHead head_of(const AttentionShape& s,
                             std::int64_t sample,
                             std::int64_t h,
                             const std::int32_t* starts) {
  const std::int64_t row = s.heads * s.head_channels;
  return {.time = s.time,
          .channels = s.head_channels,
          .width = rounded(s.head_channels),
          .qkv_stride = s.packed_width(),
          .out_stride = row,
          .to_key = row + (h / s.group() - h) * s.head_channels,
          .to_value = s.key_value_heads() * s.head_channels,
          .scale = 1.0F / std::sqrt(static_cast<float>(s.head_channels)),
          .window = s.window,
          .sample = sample,
          .first_element = h * s.time * s.time,
          .starts = starts == nullptr ? nullptr : starts + sample * s.time};
}

/// The first elements of a query head in the tensors of a call.
struct HeadPlace {
  std::int64_t out, qkv, lse;
};
inline HeadPlace place_of(const AttentionShape& s, std::int64_t sample, std::int64_t h) {
  return {.out = (sample * s.time * s.heads + h) * s.head_channels,
          .qkv = sample * s.time * s.packed_width() + h * s.head_channels,
          .lse = (sample * s.heads + h) * s.time};
}

}  // namespace trireme::ops::cpu
