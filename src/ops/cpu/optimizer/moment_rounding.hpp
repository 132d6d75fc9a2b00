// SPDX-License-Identifier: Apache-2.0
// The words of moment_rounding.hpp for runs of elements.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/dtype.hpp"

#include "ops/cpu/loops.hpp"
#include "ops/cpu/random_words.hpp"
#include "ops/optimizer/moment_rounding.hpp"

namespace trireme::ops::cpu {

/// Elements whose words are made at a time; a multiple of 64.
inline constexpr std::int64_t moment_run_elements = 256;

/// Room for a run that does not start at a multiple of four.
struct MomentWords {
  alignas(64) std::array<std::uint32_t, moment_run_elements + 64> room;
};

/// moment_word() of elements [begin, begin + count); count <= moment_run_elements. The result
/// points into `words`.
TRIREME_INLINE const std::uint32_t* moment_words(MomentWords& words,
                                                 const MomentRounding& rounding,
                                                 std::int64_t begin,
                                                 std::int64_t count) {
  const std::int64_t skipped = (rounding.first + begin) % 4;
  const std::uint64_t first = rounding.counter(begin);
  for (std::int64_t i = 0; i < skipped + count; i += std::int64_t{4} * random_lanes) {
    alignas(64) RandomLanes lanes;
    random_words(lanes, rounding.key, first + static_cast<std::uint64_t>(i / 4), rounding.step);
    std::uint32_t* const to = words.room.data() + i;
#pragma omp simd
    for (unsigned l = 0; l < random_lanes; ++l) {
      std::uint32_t* const four = to + std::size_t{4} * l;
      four[0] = lanes[0][l];
      four[1] = lanes[1][l];
      four[2] = lanes[2][l];
      four[3] = lanes[3][l];
    }
  }
  return words.room.data() + skipped;
}

/// A moment as it is kept; `random` is below 2^16, and not read in fp32.
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

/// Of a chunk that begins `begin` elements later.
inline MomentRounding later(MomentRounding rounding, std::int64_t begin) {
  rounding.first += begin;
  return rounding;
}

}  // namespace trireme::ops::cpu
