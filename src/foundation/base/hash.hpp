// SPDX-License-Identifier: Apache-2.0
// 64-bit hashes that detect accidents (damaged files, diverged ranks), not attacks.
//
// hash_bytes    XXH64 of a byte range, for small data.
// hash_elements the sum modulo 2^64 of element_hash, a strong mix of (index, bits), over a tensor's
//               elements. It does not depend on how the tensor is split or in which order the parts
//               are hashed, but it changes if two elements are swapped.
//
// Source: XXH64, Y. Collet, "xxHash fast digest algorithm", format description 0.1.1, with its
// five primes; summing hashes: Bellare, Micciancio 1997, "AdHash"; mix64: the finalizer of
// SplitMix64, Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014
// (variant 13 of D. Stafford's constants).
#pragma once

#include <cstdint>
#include <string_view>

#include "base/host_device.hpp"
#include "base/view.hpp"

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

/// Sum of element_hash(begin + i, bits of data[i]) modulo 2^64. Host memory.
std::uint64_t hash_elements(ConstView data, std::int64_t begin);

std::uint64_t hash_bytes(std::string_view bytes, std::uint64_t seed = 0);

}  // namespace trireme
