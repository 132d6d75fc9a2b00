// SPDX-License-Identifier: Apache-2.0
// Which of the settings that were run is chosen. Pure arithmetic.
//
// Settings are run in rounds, each of them once in every round beside the deck's own values; a
// ratio is that of two steps of one round, so that what disturbs a machine for longer than a round
// is in both. A setting is measurably better when its median ratio is at least 1 % below 1 and
// three quarters of its rounds are below 1.
//
// The best of several is partly the luckiest. So it is run once more against the deck's own values,
// and only these later rounds decide, and give the gain. There it has to be measurably better
// with at most one round in eight above 1: of a setting that gains nothing 9 of 256 series of eight
// rounds are like that.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace trireme::tune {

inline constexpr double least_gain = 0.01;

struct Ratio {
  double median = 1;
  double low = 1, high = 1;  ///< quartiles

  [[nodiscard]] bool measurably_better() const { return median <= 1 - least_gain && high < 1; }
};

/// Of seconds in the same rounds. Requires: equally many, at least one.
Ratio ratio_of(const std::vector<double>& seconds, const std::vector<double>& own);

/// Whether the later rounds do.
bool confirms(const std::vector<double>& seconds, const std::vector<double>& own);

/// A setting beside the deck's own in rounds.
struct Trial {
  Ratio ratio;
  bool changes_bits = false;
  std::size_t changed_keys = 0;
};

/// The one to run once more: of those that are measurably better and within 1 % of the least median
/// ratio one that changes no bits, if there is one, and of these one that changes fewest keys.
/// Nothing where none is measurably better.
std::optional<std::size_t> best_of(const std::vector<Trial>& trials);

}  // namespace trireme::tune
