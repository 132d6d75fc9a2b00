// SPDX-License-Identifier: Apache-2.0
#include "tune/choice.hpp"

#include <algorithm>
#include <tuple>

#include "base/error.hpp"
#include "base/quantile.hpp"

namespace trireme::tune {

Ratio ratio_of(const std::vector<double>& seconds, const std::vector<double>& own) {
  TRIREME_EXPECT(seconds.size() == own.size(), "{} rounds compared with {}", seconds.size(),
                 own.size());
  std::vector<double> ratios;
  for (std::size_t i = 0; i < own.size(); ++i) ratios.push_back(seconds[i] / own[i]);
  return {median(ratios), quantile(ratios, 0.25), quantile(ratios, 0.75)};
}

bool confirms(const std::vector<double>& seconds, const std::vector<double>& own) {
  std::size_t above = 0;
  for (std::size_t i = 0; i < own.size(); ++i)
    if (seconds[i] >= own[i])
      ++above;
  return ratio_of(seconds, own).measurably_better() && 8 * above <= own.size();
}

std::optional<std::size_t> best_of(const std::vector<Trial>& trials) {
  double least = 1;
  for (const Trial& trial : trials)
    if (trial.ratio.measurably_better())
      least = std::min(least, trial.ratio.median);
  const auto order = [](const Trial& trial) {
    return std::tuple(trial.changes_bits, trial.changed_keys, trial.ratio.median);
  };
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < trials.size(); ++i)
    if (trials[i].ratio.measurably_better() && trials[i].ratio.median <= least + least_gain &&
        (!best || order(trials[i]) < order(trials[*best])))
      best = i;
  return best;
}

}  // namespace trireme::tune
