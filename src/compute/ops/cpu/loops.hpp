// SPDX-License-Identifier: Apache-2.0
// Shared by the CPU bodies: loops over threads, conversions, and an exponential, all of which the
// compiler vectorizes.
// 1. The division of work depends on the shape only (`for_chunks`), and no chunk depends on another
//    one, so the bits of a result do not depend on the number of threads.
// 2. Kernels are marked TRIREME_CLONES (base/clones.hpp). The functions that they call are
//    TRIREME_INLINE, so they are compiled for the kernel's level.
// 3. An OpenMP loop with one chunk starts no threads, so a small tensor costs only a call.
// 4. bf16 becomes fp32 by a shift and is rounded to nearest even; NaN stay NaN, and become quiet.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/clones.hpp"
#include "base/dtype.hpp"
#include "base/round_up.hpp"

#define TRIREME_INLINED __attribute__((always_inline))  // of a lambda
#define TRIREME_INLINE inline TRIREME_INLINED

namespace trireme::ops::cpu {

/// Whether kernels marked TRIREME_AVX512 (ops/cpu/x86/avx512_lanes.hpp) may run here.
inline bool has_avx512() {
#if defined(__x86_64__) && TRIREME_X86_LEVEL >= 4
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  return has;
#else
  return false;
#endif
}

/// Calls body(begin, end) for each chunk of [0, count), on all threads.
template <class Body>
void for_chunks(std::int64_t count, std::int64_t chunk, const Body& body) {
  const std::int64_t chunks = divided_up(count, chunk);
#pragma omp parallel for schedule(static) if (chunks > 1)
  for (std::int64_t c = 0; c < chunks; ++c) body(c * chunk, std::min(count, (c + 1) * chunk));
}

/// 64 KiB of fp32: enough to outweigh a loop's start, small enough for a second-level cache.
inline constexpr std::int64_t elements_per_chunk = 16384;

/// Calls body(begin, end) for rows of `columns` elements, about a chunk of elements at a time.
template <class Body>
void for_rows(std::int64_t rows, std::int64_t columns, const Body& body) {
  for_chunks(rows, std::max<std::int64_t>(1, elements_per_chunk / columns), body);
}

/// Lets the same source serve both dtypes.
TRIREME_INLINE float to_float(float x) {
  return x;
}
TRIREME_INLINE float to_float(Bf16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16U);
}
template <class T>
TRIREME_INLINE T from_float(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    const auto raw = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t rounded = (raw + 0x7fffU + ((raw >> 16U) & 1U)) >> 16U;
    const std::uint32_t quiet = (raw >> 16U) | 0x40U;
    Bf16 result;
    result.bits = static_cast<std::uint16_t>((raw & 0x7fffffffU) > 0x7f800000U ? quiet : rounded);
    return result;
  }
}

/// e^x within 2 units in the last place; 0 below -87.3, at most e^88.3; NaN stays NaN.
/// Source: Cody, Waite 1980, chapter 6 (reduction by a two-part ln 2); Taylor coefficients to
/// degree 7, whose remainder on |r| <= ln(2)/2 is 5e-9.
TRIREME_INLINE float fast_exp(float x) {
  constexpr float lowest = -87.3F, highest = 88.3F;
  const float clamped = x < lowest ? lowest : (x > highest ? highest : x);
  constexpr float rounder = 0x1.8p23F;  // adding it leaves the rounded integer in the low bits
  const float shifted = clamped * 1.44269504F + rounder;
  const float n = shifted - rounder;
  const float r = (clamped - n * 0.693359375F) - n * -2.12194440e-4F;
  float p = 1.0F / 5040.0F;
  p = p * r + 1.0F / 720.0F;
  p = p * r + 1.0F / 120.0F;
  p = p * r + 1.0F / 24.0F;
  p = p * r + 1.0F / 6.0F;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  const float scale = std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) << 23U) +
                                           (std::uint32_t{127} << 23U));
  return x < lowest ? 0.0F : p * scale;
}

}  // namespace trireme::ops::cpu
