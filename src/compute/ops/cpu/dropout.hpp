// SPDX-License-Identifier: Apache-2.0
// dropout_factor() for runs of elements, sixteen counters at a time.
//
// 1. Factors are those of ops/dropout.hpp, to the bit: 0, or 1 / (1 - rate).
// 2. One counter serves four elements, so a run that does not begin at a multiple of four computes
//    up to three unused factors, and every run computes whole groups of 64.
// 3. The caller provides the memory of a run, on its stack, so threads share nothing.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "ops/cpu/loops.hpp"
#include "ops/cpu/random_words.hpp"
#include "ops/dropout.hpp"

namespace trireme::ops::cpu {

/// Elements per call of dropout_run; a multiple of 64.
inline constexpr std::int64_t dropout_run_elements = 256;

/// The factors of the 64 elements from `group`·4 on, as dropout_factor() gives them.
TRIREME_INLINE void dropout_64(float* factors,
                               const Dropout& d,
                               std::uint64_t sample,
                               std::uint64_t group) {
  alignas(64) RandomLanes words;
  random_words(words, d.key, (std::uint64_t{d.site} << 40U) + group, sample);
  const float kept = 1.0F / (1.0F - d.rate), rate = d.rate;
  const auto factor = [=](std::uint32_t word) {
    const float u = static_cast<float>(static_cast<std::int32_t>(word >> 8U)) * 0x1.0p-24F;
    return u < rate ? 0.0F : kept;
  };
#pragma omp simd
  for (unsigned l = 0; l < random_lanes; ++l) {
    float* const four = factors + std::size_t{4} * l;
    four[0] = factor(words[0][l]);
    four[1] = factor(words[1][l]);
    four[2] = factor(words[2][l]);
    four[3] = factor(words[3][l]);
  }
}

/// Room for a run that does not start at a multiple of four.
struct DropoutRun {
  alignas(64) std::array<float, dropout_run_elements + 64> room;
};

/// The factors of elements [first, first + count) of batch row `row`; count <=
/// dropout_run_elements. The result points into `run`.
TRIREME_INLINE const float* dropout_run(
    DropoutRun& run, const Dropout& d, std::int64_t row, std::int64_t first, std::int64_t count) {
  // Where active(), there is a sample (ops/dispatch.hpp). NOLINTNEXTLINE(*-core.NullDereference)
  const std::uint64_t sample = *d.first_sample + static_cast<std::uint64_t>(row);
  const std::int64_t skipped = first % 4;
  for (std::int64_t i = 0; i < skipped + count; i += 64)
    dropout_64(run.room.data() + i, d, sample, static_cast<std::uint64_t>(first / 4 + i / 4));
  return run.room.data() + skipped;
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

/// The same of elements [first, first + count) of a batch of samples.
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
