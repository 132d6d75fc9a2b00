// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/optimizer/reductions.hpp"

#include <algorithm>
#include <bit>

#include "base/hash.hpp"
#include "base/round_up.hpp"

#include "ops/cpu/loops.hpp"

namespace trireme::ops::cpu {
namespace {

constexpr std::uint32_t magnitude_bits = 0x7fffffffU;
constexpr std::uint32_t infinity_bits = 0x7f800000U;

TRIREME_CLONES bool all_finite(const float* values, std::int64_t count) {
  std::uint32_t largest = 0;
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < count; ++i)
    largest = std::max(largest, std::bit_cast<std::uint32_t>(values[i]) & magnitude_bits);
  return largest < infinity_bits;
}

}  // namespace

/// A chunk is read as integers: the largest exponent of its elements shows whether any is not
/// finite. Only then is the chunk searched.
std::int64_t find_not_finite(const float* values, std::int64_t count) {
  const std::int64_t chunks = divided_up(count, elements_per_chunk);
  std::int64_t first = count;
#pragma omp parallel for schedule(static) reduction(min : first) if (chunks > 1)
  for (std::int64_t c = 0; c < chunks; ++c) {
    const std::int64_t begin = c * elements_per_chunk;
    const std::int64_t end = std::min(count, begin + elements_per_chunk);
    if (all_finite(values + begin, end - begin))
      continue;
    std::int64_t i = begin;
    while ((std::bit_cast<std::uint32_t>(values[i]) & magnitude_bits) < infinity_bits) ++i;
    first = std::min(first, i);
  }
  return first == count ? -1 : first;
}

/// The order of a sum does not matter, so the threads' parts are simply added.
std::uint64_t hash_elements(ConstView values) {
  const std::int64_t chunks = divided_up(values.elements, elements_per_chunk);
  std::uint64_t sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum) if (chunks > 1)
  for (std::int64_t c = 0; c < chunks; ++c) {
    const std::int64_t begin = c * elements_per_chunk;
    sum += trireme::hash_elements(
        values.slice(begin, std::min(elements_per_chunk, values.elements - begin)), begin);
  }
  return sum;
}

}  // namespace trireme::ops::cpu
