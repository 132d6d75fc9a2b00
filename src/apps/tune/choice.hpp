// SPDX-License-Identifier: Apache-2.0
// Chooses one of the settings that were run.
//
// In every round each setting and the deck's own are run once. A ratio compares two steps of the
// same round, so that disturbances of the machine affect both. A setting is measurably better if
// its median ratio is at least 1 % below 1 and three quarters of its ratios are below 1.
//
// The best of several is partly chance. So it is run again against the deck's own values, and only
// these rounds decide and give the gain. The setting must be measurably better with at most one
// ratio in eight above 1; without a real gain, 9 of 256 series of eight rounds achieve this.
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

/// The ratio of seconds in the same rounds. Requires: equal numbers, at least one.
Ratio ratio_of(const std::vector<double>& seconds, const std::vector<double>& own);

/// Whether the repeated rounds show a gain.
bool confirms(const std::vector<double>& seconds, const std::vector<double>& own);

/// The result of a setting in the first rounds.
struct Trial {
  Ratio ratio;
  bool changes_bits = false;
  std::size_t changed_keys = 0;
};

/// The setting to run again. Considers those that are measurably better and within 1 % of the
/// smallest median ratio, and prefers one that changes no bits, then one with the fewest changed
/// keys. Nothing if none is measurably better.
std::optional<std::size_t> best_of(const std::vector<Trial>& trials);

}  // namespace trireme::tune
