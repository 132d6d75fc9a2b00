// SPDX-License-Identifier: Apache-2.0
// Which positions of its row a query sees, inside of kernels: those from first_key(t) to t. The
// first one never falls from a query to the next, so the queries that see a key are those from its
// own position to an end, and what the rows of a tile see is between what its first and its last
// row see. The CPU's is in cpu/attention_head.hpp.
#pragma once

#include <cstdint>

#include "ops/cuda/attention.hpp"
#include "ops/cuda/loops.cuh"

namespace trireme::ops::cuda {

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

}  // namespace trireme::ops::cuda
