// SPDX-License-Identifier: Apache-2.0
// The words of moment_rounding.hpp for runs of elements, which kernels then read.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "base/dtype.hpp"

#include "ops/cpu/loops.hpp"
#include "ops/cpu/random_words.hpp"
#include "ops/optimizer/moment_rounding.hpp"

namespace trireme::ops::cpu {

/// Elements whose words are made at a time: they stay in the first-level cache until they are read.
inline constexpr std::int64_t moment_run_elements = 1024;

/// Calls body(begin, elements, words) for runs of [begin, end): one run without words where moments
/// are fp32.
template <class M, class Body>
void for_moment_runs(const MomentRounding& rounding,
                     std::int64_t begin,
                     std::int64_t end,
                     const Body& body) {
  if constexpr (std::is_same_v<M, float>) {
    body(begin, end - begin, static_cast<const std::uint32_t*>(nullptr));
  } else {
    RandomRoom<moment_run_elements> room;
    for (; begin < end; begin += moment_run_elements) {
      const std::int64_t count = std::min(moment_run_elements, end - begin);
      body(begin, count,
           random_words(room.words.data(), rounding.key, rounding.parameter << 40U,
                        rounding.first + begin, count, rounding.step));
    }
  }
}

/// Of a kernel's element `i`; 0 where moments are fp32.
template <class M>
TRIREME_INLINE std::uint32_t word_of(const std::uint32_t* words, std::int64_t i) {
  if constexpr (std::is_same_v<M, float>)
    return 0;
  else
    return words[i];
}

/// A moment as it is stored; `random` is below 2^16, and not read for fp32.
template <class M>
TRIREME_INLINE M kept_moment(float value, std::uint32_t random) {
  if constexpr (std::is_same_v<M, float>) {
    return value;
  } else {
    M kept;
    kept.bits =
        static_cast<std::uint16_t>(rounded_at_random(std::bit_cast<std::uint32_t>(value), random));
    return kept;
  }
}

}  // namespace trireme::ops::cpu
