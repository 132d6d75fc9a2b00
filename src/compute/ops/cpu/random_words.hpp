// SPDX-License-Identifier: Apache-2.0
// philox() of base/random.hpp for sixteen counters at a time, so that the compiler can vectorize
// it: the ten rounds of a counter depend on one another, but sixteen counters are independent.
//
// The words equal those of philox(). They are ordered by word and then by counter, as the rounds
// compute them; dropout.hpp transposes them to the order of elements. x86/avx512_random.hpp is the
// version for AVX-512.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/random.hpp"

#include "ops/cpu/loops.hpp"

namespace trireme::ops::cpu {

inline constexpr int random_lanes = 16;
/// By word of Words4 and by counter.
using RandomLanes = std::array<std::array<std::uint32_t, random_lanes>, 4>;

/// words[k][l] = philox(key, first + l, high).w[k]. `words` is aligned to 64 bytes.
TRIREME_INLINE void random_words(RandomLanes& words,
                                 RandomKey key,
                                 std::uint64_t first,
                                 std::uint64_t high) {
  // Not a structured binding: clang 16 crashes on one inside of an OpenMP loop.
  auto &c0 = words[0], &c1 = words[1], &c2 = words[2], &c3 = words[3];
#pragma omp simd
  for (unsigned l = 0; l < random_lanes; ++l) {
    c0[l] = static_cast<std::uint32_t>(first + l);
    c1[l] = static_cast<std::uint32_t>((first + l) >> 32U);
    c2[l] = static_cast<std::uint32_t>(high);
    c3[l] = static_cast<std::uint32_t>(high >> 32U);
  }
  std::uint32_t k0 = key.low, k1 = key.high;
  for (int round = 0; round < 10; ++round) {
#pragma omp simd
    for (unsigned l = 0; l < random_lanes; ++l) {
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
}

}  // namespace trireme::ops::cpu
