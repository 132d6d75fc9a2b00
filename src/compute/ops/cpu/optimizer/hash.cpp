// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/optimizer/hash.hpp"

#include <algorithm>

#include "base/hash.hpp"
#include "base/round_up.hpp"

#include "ops/cpu/loops.hpp"

namespace trireme::ops::cpu {

/// The sum has no order, so the threads' parts are simply added up.
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
