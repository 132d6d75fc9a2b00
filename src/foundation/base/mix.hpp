// SPDX-License-Identifier: Apache-2.0
// The mixing of 64-bit words that hashes are made of, for the host and the GPU.
// Source: the finalizer of SplitMix64, Steele, Lea, Flood: "Fast splittable pseudorandom number
// generators", OOPSLA 2014 (variant 13 of D. Stafford's constants).
#pragma once

#include <cstdint>

#include "base/host_device.hpp"

namespace trireme {

inline constexpr std::uint64_t golden64 = 0x9E3779B97F4A7C15U;

/// A bijection of 64-bit words in which every input bit flips every output bit about half the time.
TRIREME_HOST_DEVICE constexpr std::uint64_t mix64(std::uint64_t x) {
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}

TRIREME_HOST_DEVICE constexpr std::uint64_t element_hash(std::uint64_t index, std::uint64_t bits) {
  return mix64(mix64(index + golden64) + bits);
}

}  // namespace trireme
