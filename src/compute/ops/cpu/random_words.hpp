// SPDX-License-Identifier: Apache-2.0
// The words of philox() (base/random.hpp) for runs of elements, four per counter, in the order of
// the elements: for dropout and the rounding of moments. The caller provides the memory, on its
// stack, so threads share nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/random.hpp"

namespace trireme::ops::cpu {

/// Words that are written at a time.
inline constexpr std::int64_t random_group = 128;

/// Room for the words of up to `elements` elements, which need not begin at a multiple of four.
template <std::int64_t elements>
struct RandomRoom {
  static_assert(elements % random_group == 0);
  alignas(64) std::array<std::uint32_t, static_cast<std::size_t>(elements + random_group)> words;
};

/// The words of elements [first, first + count); element e has word e % 4 of philox(key, base + e /
/// 4, high). `room` has the size of a RandomRoom for `count`; the result points into it.
const std::uint32_t* random_words(std::uint32_t* room,
                                  RandomKey key,
                                  std::uint64_t base,
                                  std::int64_t first,
                                  std::int64_t count,
                                  std::uint64_t high);

}  // namespace trireme::ops::cpu
