// SPDX-License-Identifier: Apache-2.0
// Gradients for tests: a pure function of (rank, position). Magnitudes differ so much that the last
// bits of a sum depend on its order.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>

#include "base/dtype.hpp"
#include "base/random.hpp"
#include "base/view.hpp"

namespace trireme::comm::testing {

inline float gradient(int rank, std::int64_t i, int round = 0) {
  const Words4 words =
      philox(RandomKey::of(99, Draw::synthetic), static_cast<std::uint64_t>(i),
             (static_cast<std::uint64_t>(round) << 32U) | static_cast<std::uint64_t>(rank));
  return std::ldexp(uniform(words.w[0]) - 0.5F, static_cast<int>(words.w[2] % 12U));
}

inline float element(const std::byte* data, std::int64_t i, DType dtype) {
  return dtype == DType::f32 ? reinterpret_cast<const float*>(data)[i]
                             : static_cast<float>(reinterpret_cast<const Bf16*>(data)[i]);
}

inline void set_element(std::byte* data, std::int64_t i, DType dtype, float value) {
  if (dtype == DType::f32)
    reinterpret_cast<float*>(data)[i] = value;
  else
    reinterpret_cast<Bf16*>(data)[i] = Bf16(value);
}

inline void fill(View full, int rank, int round = 0) {
  for (std::int64_t i = 0; i < full.elements; ++i)
    set_element(full.data, i, full.dtype, gradient(rank, i, round));
}

inline float rounded(float value, DType dtype) {
  return dtype == DType::f32 ? value : static_cast<float>(Bf16(value));
}

/// ((g0 + g1) + g2) + … in fp32, rounded once to `dtype`.
inline float ordered_sum(int num_ranks, std::int64_t i, DType dtype, int round = 0) {
  float sum = rounded(gradient(0, i, round), dtype);
  for (int r = 1; r < num_ranks; ++r) sum += rounded(gradient(r, i, round), dtype);
  return rounded(sum, dtype);
}

/// (g0 + g1) + (g2 + g3) …: the sum of the first half of the ranks, which has one more of an odd
/// number, plus that of the others. In fp32, rounded once to `dtype`.
inline float paired_sum(int num_ranks, std::int64_t i, DType dtype, int round = 0) {
  const std::function<float(int, int)> sum_of = [&](int begin, int end) {
    if (end - begin == 1)
      return rounded(gradient(begin, i, round), dtype);
    const int middle = end - (end - begin) / 2;
    return sum_of(begin, middle) + sum_of(middle, end);
  };
  return rounded(sum_of(0, num_ranks), dtype);
}

}  // namespace trireme::comm::testing
