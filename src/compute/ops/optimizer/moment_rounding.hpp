// SPDX-License-Identifier: Apache-2.0
// Stochastic rounding of moments stored in bf16 (docs/design/training.md, "Sharded optimizer").
// Rounded to nearest, a mean with a beta near 1 would not change: with 0.999 a step changes it by a
// thousandth of its distance, but the last place of a bf16 is more than 1/256.
//
// Element e of parameter p in step t has word[e % 4] of philox(key, counter = (p << 40) + e / 4,
// counter_high = t): its lower half for the first moment, its upper half for the second. There is
// no state, and ranks, threads, buckets and shards are not arguments.
#pragma once

#include <cstdint>

#include "base/host_device.hpp"
#include "base/random.hpp"

namespace trireme::ops {

/// Where the elements of a call are in the random sequence; not read if moments are fp32.
struct MomentRounding {
  RandomKey key;
  std::uint64_t step = 0;       ///< counted from 1
  std::uint64_t parameter = 0;  ///< its index
  std::int64_t first = 0;       ///< the views' first element within the parameter

  [[nodiscard]] TRIREME_HOST_DEVICE std::uint64_t counter(std::int64_t element) const {
    return (parameter << 40U) + static_cast<std::uint64_t>(first + element) / 4;
  }
};

TRIREME_HOST_DEVICE inline std::uint32_t moment_word(const MomentRounding& rounding,
                                                     std::int64_t element) {
  const Words4 words = philox(rounding.key, rounding.counter(element), rounding.step);
  // Selected, not indexed: on a GPU, an indexed array is in memory.
  const auto place = static_cast<std::uint64_t>(rounding.first + element) % 4;
  const std::uint32_t early = place == 0 ? words.w[0] : words.w[1];
  const std::uint32_t late = place == 2 ? words.w[2] : words.w[3];
  return place < 2 ? early : late;
}

/// The bits of a bf16: `raw`, the bits of an fp32, rounded away from zero if the 16 bits that are
/// cut off plus `random`, below 2^16, give a carry. Values above the largest bf16 are truncated, so
/// nothing finite becomes infinite. NaN stays NaN.
TRIREME_HOST_DEVICE constexpr std::uint32_t rounded_at_random(std::uint32_t raw,
                                                              std::uint32_t random) {
  constexpr std::uint32_t infinity = 0x7f800000U, largest_bf16 = 0x7f7f0000U;
  const std::uint32_t magnitude = raw & 0x7fffffffU;
  const std::uint32_t quiet = magnitude > infinity ? 0x40U : 0U;
  return magnitude >= largest_bf16 ? (raw >> 16U) | quiet : (raw + random) >> 16U;
}

}  // namespace trireme::ops
