// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: a pure function of (key, counter). There is no state, so results do
// not depend on threads, on ranks or on the order of calls, and a run resumes without saving a
// generator. Initialization, dropout, sample order, text sampling and the rounding of moments all
// draw from here, each with its own `Draw` in the key.
//
// Source: Philox4x32-10, Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3",
// SC11, with the constants of its section 5; the test compares with the paper's known answers.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "base/host_device.hpp"

namespace trireme {

/// What the numbers are for; two purposes never share a sequence. Values are persistent:
/// checkpoints rely on them.
enum class Draw : std::uint32_t {
  initialize = 1,
  dropout = 2,
  sample_order = 3,
  text = 4,
  synthetic = 5,
  mixture = 6,
  moments = 7
};

struct RandomKey {
  std::uint32_t low = 0;
  std::uint32_t high = 0;

  /// A key from the run's seed.
  TRIREME_HOST_DEVICE static constexpr RandomKey of(std::uint64_t seed, Draw draw) {
    return {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U) ^
                                                  (static_cast<std::uint32_t>(draw) * 0x9E3779B9U)};
  }
};

struct Words4 {
  std::uint32_t w[4];
};

/// Four independent 32-bit words for (key, counter).
TRIREME_HOST_DEVICE constexpr Words4 philox(RandomKey key,
                                            std::uint64_t counter,
                                            std::uint64_t counter_high = 0) {
  std::uint32_t c0 = static_cast<std::uint32_t>(counter);
  std::uint32_t c1 = static_cast<std::uint32_t>(counter >> 32U);
  std::uint32_t c2 = static_cast<std::uint32_t>(counter_high);
  std::uint32_t c3 = static_cast<std::uint32_t>(counter_high >> 32U);
  std::uint32_t k0 = key.low, k1 = key.high;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * c0;
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57U} * c2;
    const auto n0 = static_cast<std::uint32_t>(p1 >> 32U) ^ c1 ^ k0;
    const auto n2 = static_cast<std::uint32_t>(p0 >> 32U) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(p1);
    c3 = static_cast<std::uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return {{c0, c1, c2, c3}};
}

/// Uniform in [0, 1) with 24 bits, exact in fp32.
TRIREME_HOST_DEVICE constexpr float uniform(std::uint32_t word) {
  return static_cast<float>(word >> 8U) * 0x1.0p-24F;
}

/// A standard normal from two words (Box and Muller 1958), computed in double so that libm
/// differences stay below fp32.
inline double normal(std::uint32_t a, std::uint32_t b) {
  const double u = (static_cast<double>(a) + 0.5) * 0x1.0p-32;
  const double v = (static_cast<double>(b) + 0.5) * 0x1.0p-32;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

/// Uniform in [0, bound), by scaling 64 bits. The bias is negligible (below bound / 2^64).
inline std::uint64_t below(std::uint64_t bound, std::uint32_t a, std::uint32_t b) {
  const auto word = (static_cast<std::uint64_t>(a) << 32U) | b;
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(word) * bound) >> 64U);
}

}  // namespace trireme
