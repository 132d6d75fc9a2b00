// SPDX-License-Identifier: Apache-2.0
// Quantiles of measurements, as used by all benchmarks. Values in between are interpolated linearly
// (type 7 of Hyndman, Fan 1996; the default of numpy.quantile), so the median of an even number of
// values is the mean of the middle two.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace trireme {

/// Requires: at least one value, none of them NaN, and `part` within [0, 1].
inline double quantile(std::vector<double> values, double part) {
  TRIREME_EXPECT(!values.empty() && part >= 0 && part <= 1, "quantile {} of {} values", part,
                 values.size());
  std::ranges::sort(values);
  const double at = part * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (at - static_cast<double>(low)) * (values[high] - values[low]);
}

inline double median(std::vector<double> values) {
  return quantile(std::move(values), 0.5);
}

/// Median absolute deviation: the median of the distances from the median.
inline double mad(std::vector<double> values) {
  const double middle = median(values);
  for (double& value : values) value = std::abs(value - middle);
  return median(std::move(values));
}

}  // namespace trireme
