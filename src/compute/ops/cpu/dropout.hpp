// SPDX-License-Identifier: Apache-2.0
// dropout_factor() for runs of elements: the factors of ops/dropout.hpp, to the bit, 0 or
// 1 / (1 - rate). The caller provides the memory of a run, on its stack, so threads share nothing.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "ops/cpu/loops.hpp"
#include "ops/cpu/random_words.hpp"
#include "ops/dropout.hpp"

namespace trireme::ops::cpu {

inline constexpr std::int64_t dropout_run_elements = 256;

/// Memory for the random words of a run, and its factors.
struct DropoutRun : RandomRoom<dropout_run_elements> {
  alignas(64) std::array<float, dropout_run_elements> factors;
};

/// The factors of elements [first, first + count) of batch row `row`; count <=
/// dropout_run_elements. The result points into `run`.
TRIREME_INLINE const float* dropout_run(
    DropoutRun& run, const Dropout& d, std::int64_t row, std::int64_t first, std::int64_t count) {
  // Where active(), there is a sample (ops/dispatch.hpp). NOLINTNEXTLINE(*-core.NullDereference)
  const std::uint64_t sample = *d.first_sample + static_cast<std::uint64_t>(row);
  const std::uint32_t* words =
      random_words(run.words.data(), d.key, std::uint64_t{d.site} << 40U, first, count, sample);
  float* factors = run.factors.data();
  const float kept = 1.0F / (1.0F - d.rate), rate = d.rate;
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float u = static_cast<float>(static_cast<std::int32_t>(words[i] >> 8U)) * 0x1.0p-24F;
    factors[i] = u < rate ? 0.0F : kept;
  }
  return factors;
}

/// to[i] = made(i, the factor of element first + i) of batch row `row` for i below `count`; without
/// dropout all factors are 1.
template <class T, class Made>
TRIREME_INLINE void drop(T* to,
                         const Dropout& d,
                         std::int64_t row,
                         std::int64_t first,
                         std::int64_t count,
                         const Made& made) {
  if (!d.active()) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) to[i] = from_float<T>(made(i, 1.0F));
    return;
  }
  DropoutRun run;
  for (std::int64_t begin = 0; begin < count; begin += dropout_run_elements) {
    const std::int64_t n = std::min(dropout_run_elements, count - begin);
    const float* factors = dropout_run(run, d, row, first + begin, n);
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) to[begin + i] = from_float<T>(made(begin + i, factors[i]));
  }
}

/// The same for elements [first, first + count) of a batch of samples.
template <class T, class Made>
TRIREME_INLINE void drop_samples(T* to,
                                 const Dropout& d,
                                 std::int64_t elements_per_sample,
                                 std::int64_t first,
                                 std::int64_t count,
                                 const Made& made) {
  for (std::int64_t at = 0, n = 0; at < count; at += n) {
    const std::int64_t element = (first + at) % elements_per_sample;
    n = std::min(count - at, elements_per_sample - element);
    drop(to + at, d, (first + at) / elements_per_sample, element, n,
         [&](std::int64_t i, float factor) TRIREME_INLINED { return made(at + i, factor); });
  }
}

}  // namespace trireme::ops::cpu
