// SPDX-License-Identifier: Apache-2.0
// Computes the smallest, median and largest value of a number over the ranks, and the rank with the
// largest, without gathering the values. Memory does not grow with the ranks, and time grows with
// their logarithm: some tens of small reductions for all numbers at once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/control/world.hpp"

namespace trireme::train {

struct RankSpread {
  std::int64_t least = 0;
  std::int64_t median = 0;  ///< the lower one of an even count; see over_ranks
  std::int64_t most = 0;
  std::int64_t rank_of_most = 0;  ///< the first that has it
};

/// Of each of `values`, which are at least 0, over all ranks. Collective; the same on all ranks.
/// The median is exact where it is below 128 and at most 1/128 too large elsewhere: it is found by
/// halving the interval that holds it and counting the ranks in the lower half.
std::vector<RankSpread> over_ranks(comm::World& world, std::span<const std::int64_t> values);

}  // namespace trireme::train
