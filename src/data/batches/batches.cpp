// SPDX-License-Identifier: Apache-2.0
#include "batches/batches.hpp"

#include <fmt/format.h>

namespace trireme::batches {

std::string uneven_text(const Batches& batches) {
  const std::int64_t most = batches.most_sequences();
  std::int64_t least = most;
  for (int rank = 0; rank < batches.ranks; ++rank)
    least = std::min(least, batches.share(rank).count);
  if (least == most)
    return "";
  const std::int64_t ranks = batches.ranks, below = batches.sequences / ranks * ranks;
  return fmt::format(
      "ranks have between {} and {} of the {} sequences, so some idle for {:.1f} % of the compute "
      "time of a step. {}",
      least, most, batches.sequences,
      100 * (1 - static_cast<double>(least) / static_cast<double>(most)),
      batches.leaves > 0 ? "They have equally many if their number is a power of two"
      : below > 0        ? fmt::format("They have equally many of {} or {}", below, below + ranks)
                         : fmt::format("They have equally many of {}", ranks));
}

}  // namespace trireme::batches
