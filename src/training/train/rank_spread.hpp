// SPDX-License-Identifier: Apache-2.0
// How a number differs over the ranks, without any rank holding all of them: the smallest, the
// median, the largest, and whose that is. Memory does not grow with the ranks, time with their
// logarithm: a spread takes some tens of small reductions, for all its numbers at once.
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
