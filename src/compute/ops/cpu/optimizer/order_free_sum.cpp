// SPDX-License-Identifier: Apache-2.0
// Each chunk of terms is split, exactly, against grids of powers of two: the part of every term
// that is a multiple of the grid's step is a small integer of steps, so those parts add up in fp64
// without rounding; the remainders go to the next, 40 bits finer grid, until all are zero. The
// chunk's exact sums then go into the accumulator, so the result is the one that term-by-term
// additions give. Source: error-free extraction, Rump, Ogita, Oishi 2008, section 3.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/round_up.hpp"

#include "ops/cpu/loops.hpp"
#include "ops/cpu/optimizer/reductions.hpp"

namespace trireme::ops::cpu {
namespace {

constexpr std::size_t terms_per_chunk = 1024;
/// A part is at most 2^40 steps, 1024 of them at most 2^50: exact in fp64.
constexpr int bits_per_grid = 40;
constexpr int most_grids = 16;  // from 2^256 down to 2^-298

struct ChunkSums {
  std::array<double, most_grids> parts;
  int count = 0;
  bool finite = true;
};

template <bool squared>
TRIREME_INLINE void split_chunk(ChunkSums& sums, const float* values, std::size_t count) {
  alignas(64) std::array<double, terms_per_chunk> rest;
  std::uint32_t largest = 0;
#pragma omp simd reduction(max : largest)
  for (std::size_t i = 0; i < count; ++i)
    largest = std::max(largest, std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffffU);
  sums.count = 0;
  sums.finite = largest < 0x7f800000U;
  if (!sums.finite)
    return;
#pragma omp simd
  for (std::size_t i = 0; i < count; ++i) {
    const auto x = static_cast<double>(values[i]);
    rest[i] = squared ? x * x : x;
  }
  // |x| < 2^(e + 1), where e is the exponent of the largest, -126 for subnormals.
  const int exponent = std::max(static_cast<int>(largest >> 23U), 1) - 127 + 1;
  int top = squared ? 2 * exponent : exponent;
  for (bool more = largest != 0; more; top -= bits_per_grid) {
    // Adding 1.5 · 2^52 steps leaves a multiple of the step, 2^(top - bits_per_grid).
    const double rounder = std::ldexp(1.5, 52 + top - bits_per_grid);
    double part = 0;
    std::uint64_t left = 0;
#pragma omp simd reduction(+ : part) reduction(| : left)
    for (std::size_t i = 0; i < count; ++i) {
      const double steps = (rest[i] + rounder) - rounder;
      const double remainder = rest[i] - steps;
      rest[i] = remainder;
      part += steps;
      left |= std::bit_cast<std::uint64_t>(remainder) << 1U;  // -0 counts as no remainder
    }
    sums.parts[static_cast<std::size_t>(sums.count++)] = part;
    more = left != 0;
  }
}

TRIREME_CLONES void split_squares(ChunkSums& sums, const float* values, std::size_t count) {
  split_chunk<true>(sums, values, count);
}
TRIREME_CLONES void split_values(ChunkSums& sums, const float* values, std::size_t count) {
  split_chunk<false>(sums, values, count);
}

template <bool squared>
void add_terms(OrderFreeSum& sum, const float* values, std::int64_t count) {
  constexpr auto step = static_cast<std::int64_t>(terms_per_chunk);
  const std::int64_t chunks = divided_up(count, step);
#pragma omp parallel if (chunks > 16)
  {
    OrderFreeSum mine;
    ChunkSums sums;
#pragma omp for schedule(static) nowait
    for (std::int64_t c = 0; c < chunks; ++c) {
      const float* first = values + c * step;
      const auto n = static_cast<std::size_t>(std::min(step, count - c * step));
      (squared ? split_squares : split_values)(sums, first, n);
      if (sums.finite)
        for (int i = 0; i < sums.count; ++i) mine.add(sums.parts[static_cast<std::size_t>(i)]);
      else
        for (std::size_t i = 0; i < n; ++i) {
          const auto x = static_cast<double>(first[i]);
          mine.add(squared ? x * x : x);
        }
    }
#pragma omp critical(trireme_order_free_sum)
    sum.merge(mine);  // integers: the order of the threads does not matter
  }
}

}  // namespace

void add_squares(OrderFreeSum& sum, const float* values, std::int64_t count) {
  add_terms<true>(sum, values, count);
}

void add_values(OrderFreeSum& sum, const float* values, std::int64_t count) {
  add_terms<false>(sum, values, count);
}

}  // namespace trireme::ops::cpu
