// SPDX-License-Identifier: Apache-2.0
// Where a head's rows are, and which positions of its row a query sees, for all kernels of attention.
#pragma once

#include <cmath>
#include <cstdint>

#include "ops/cuda/attention.hpp"
#include "ops/cuda/loops.cuh"

namespace trireme::ops::cuda {

/// Where one (b, h) is. Rows of q, k, v are `step` apart, those of out `heads · D`.
struct Head {
  std::int64_t b, h, time, D, step, out_step;
  std::int64_t q, k, v, out, stats;

  __device__ Head(const AttentionSizes& s, std::int64_t sample, std::int64_t head)
      : b(sample),
        h(head),
        time(s.time),
        D(s.head_channels),
        step((s.heads + 2 * s.key_value_heads) * D),
        out_step(s.heads * D) {
    stats = (b * s.heads + h) * time;
    q = b * time * step + h * D;
    k = b * time * step + out_step + h / (s.heads / s.key_value_heads) * D;
    v = k + s.key_value_heads * D;
    out = b * time * out_step + h * D;
  }
};

/// A query t sees the positions from first_key(t) to t. first_key never decreases from one query to
/// the next. So the queries that see a key are those from its own position to an end, and the rows
/// of a tile see no more than the range between its first and its last row.
struct Sight {
  std::int64_t time, window;   // window 0: a query sees all up to its own position
  const std::int32_t* starts;  // of the documents, by position; null: there are none

  __device__ Sight(const AttentionSizes& sizes, const std::int32_t* all_starts, std::int64_t sample)
      : time(sizes.time),
        window(sizes.window),
        starts(all_starts == nullptr ? nullptr : all_starts + sample * sizes.time) {}

  __device__ std::int64_t first_key(std::int64_t query) const {
    const std::int64_t first = window > 0 && query >= window ? query - window + 1 : 0;
    if (starts == nullptr)
      return first;
    const std::int64_t start = starts[query];
    return start > first ? start : first;
  }
  /// One past the last query that sees a key up to `key`; `key` < time.
  __device__ std::int64_t end_of_queries(std::int64_t key) const {
    std::int64_t end = window > 0 && window < time - key ? key + window : time;
    if (starts == nullptr)
      return end;
    for (std::int64_t begin = key; begin < end;) {
      const std::int64_t middle = begin + (end - begin) / 2;
      if (starts[middle] <= key)
        begin = middle + 1;
      else
        end = middle;
    }
    return end;
  }
};

inline float scale_of(const AttentionSizes& s) {
  return 1.0F / sqrtf(static_cast<float>(s.head_channels));
}

}  // namespace trireme::ops::cuda
