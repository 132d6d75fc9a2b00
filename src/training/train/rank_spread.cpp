// SPDX-License-Identifier: Apache-2.0
#include "train/rank_spread.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace trireme::train {
namespace {

/// The interval that holds a median.
struct Interval {
  std::int64_t low, high;  ///< both included

  [[nodiscard]] bool is_open() const { return high - low > low / 128; }
  [[nodiscard]] std::int64_t middle() const { return low + (high - low) / 2; }
};

}  // namespace

std::vector<RankSpread> over_ranks(comm::World& world, std::span<const std::int64_t> values) {
  const std::size_t count = values.size();
  // The largest values, and the smallest ones negated.
  std::vector<std::int64_t> extremes(2 * count);
  for (std::size_t i = 0; i < count; ++i) {
    TRIREME_EXPECT(values[i] >= 0, "value {} is {}", i, values[i]);
    extremes[i] = values[i];
    extremes[count + i] = -values[i];
  }
  world.max(extremes);
  std::vector<std::int64_t> first(count);
  for (std::size_t i = 0; i < count; ++i)
    first[i] = values[i] == extremes[i] ? world.size() - world.rank() : 0;
  world.max(first);

  std::vector<Interval> medians;
  for (std::size_t i = 0; i < count; ++i) medians.push_back({-extremes[count + i], extremes[i]});
  const std::int64_t half = (world.size() + 1) / 2;
  std::vector<std::int64_t> below(count);
  while (std::ranges::any_of(medians, &Interval::is_open)) {
    for (std::size_t i = 0; i < count; ++i) below[i] = values[i] <= medians[i].middle() ? 1 : 0;
    world.sum(below);
    for (std::size_t i = 0; i < count; ++i)
      if (below[i] >= half)
        medians[i].high = medians[i].middle();
      else
        medians[i].low = medians[i].middle() + 1;
  }
  std::vector<RankSpread> spreads;
  for (std::size_t i = 0; i < count; ++i)
    spreads.push_back(
        {-extremes[count + i], medians[i].high, extremes[i], world.size() - first[i]});
  return spreads;
}

}  // namespace trireme::train
