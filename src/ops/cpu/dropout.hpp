// SPDX-License-Identifier: Apache-2.0
// dropout_factor() for runs of elements, sixteen counters at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "ops/cpu/loops.hpp"
#include "ops/dropout.hpp"

namespace trireme::ops::cpu {

/// Elements per call of dropout_run; a multiple of 64.
inline constexpr std::int64_t dropout_run_elements = 256;

/// The factors of the 64 elements from `group`·4 on, as dropout_factor() gives them.
TRIREME_INLINE void dropout_64(float* factors,
                               const Dropout& d,
                               std::uint64_t sample,
                               std::uint64_t group) {
  constexpr int lanes = 16;
  alignas(64) std::array<std::uint32_t, lanes> c0, c1, c2, c3;
  const std::uint64_t first = (std::uint64_t{d.site} << 40U) + group;
#pragma omp simd
  for (unsigned l = 0; l < lanes; ++l) {
    c0[l] = static_cast<std::uint32_t>(first + l);
    c1[l] = static_cast<std::uint32_t>((first + l) >> 32U);
    c2[l] = static_cast<std::uint32_t>(sample);
    c3[l] = static_cast<std::uint32_t>(sample >> 32U);
  }
  std::uint32_t k0 = d.key.low, k1 = d.key.high;
  for (int round = 0; round < 10; ++round) {
#pragma omp simd
    for (unsigned l = 0; l < lanes; ++l) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * c0[l];
      const std::uint64_t p1 = std::uint64_t{0xCD9E8D57U} * c2[l];
      const auto n0 = static_cast<std::uint32_t>(p1 >> 32U) ^ c1[l] ^ k0;
      const auto n2 = static_cast<std::uint32_t>(p0 >> 32U) ^ c3[l] ^ k1;
      c1[l] = static_cast<std::uint32_t>(p1);
      c3[l] = static_cast<std::uint32_t>(p0);
      c0[l] = n0;
      c2[l] = n2;
    }
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  const float kept = 1.0F / (1.0F - d.rate), rate = d.rate;
  const auto factor = [=](std::uint32_t word) {
    const float u = static_cast<float>(static_cast<std::int32_t>(word >> 8U)) * 0x1.0p-24F;
    return u < rate ? 0.0F : kept;
  };
#pragma omp simd
  for (unsigned l = 0; l < lanes; ++l) {
    float* const four = factors + std::size_t{4} * l;
    four[0] = factor(c0[l]);
    four[1] = factor(c1[l]);
    four[2] = factor(c2[l]);
    four[3] = factor(c3[l]);
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
  const std::uint64_t sample = *d.first_sample + static_cast<std::uint64_t>(row);
  const std::int64_t skipped = first % 4;
  for (std::int64_t i = 0; i < skipped + count; i += 64)
    dropout_64(run.room.data() + i, d, sample, static_cast<std::uint64_t>(first / 4 + i / 4));
  return run.room.data() + skipped;
}

}  // namespace trireme::ops::cpu
