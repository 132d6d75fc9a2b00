// SPDX-License-Identifier: Apache-2.0
#include "train/noise_scale.hpp"

#include <algorithm>
#include <cinttypes>
#include <cmath>

#include <fmt/format.h>

#include "base/error.hpp"

namespace trireme::train {

NoiseEstimate estimate_noise(double small_squared, double big_squared, double small, double big) {
  TRIREME_EXPECT(0 < small && small < big, "a noise scale from batches of {} and {}", small, big);
  return {.gradient_squared = (big * big_squared - small * small_squared) / (big - small),
          .trace = (small_squared - big_squared) / (1 / small - 1 / big)};
}

NoiseScale::NoiseScale(std::int64_t context, double smoothing)
    : context_(context), smoothing_(smoothing) {
  TRIREME_EXPECT(0 <= smoothing && smoothing < 1, "a noise scale smoothed by {}", smoothing);
}

record::NoiseScaleRow NoiseScale::add(std::int64_t step,
                                      const Batches& batches,
                                      double leaf_norm_squared,
                                      double norm_squared) {
  const NoiseEstimate now =
      estimate_noise(leaf_norm_squared, norm_squared, static_cast<double>(batches.leaf),
                     static_cast<double>(batches.step));
  const double weight = std::max(1 - smoothing_, 1 / static_cast<double>(++count_));
  smoothed_.gradient_squared += weight * (now.gradient_squared - smoothed_.gradient_squared);
  smoothed_.trace += weight * (now.trace - smoothed_.trace);
  return {.step = step,
          .leaf_norm_squared = leaf_norm_squared,
          .norm_squared = norm_squared,
          .gradient_squared = now.gradient_squared,
          .trace = now.trace,
          .smoothed_gradient_squared = smoothed_.gradient_squared,
          .smoothed_trace = smoothed_.trace,
          .sequences = sequences(),
          .tokens = tokens()};
}

double NoiseScale::sequences() const {
  return smoothed_.gradient_squared > 0 && smoothed_.trace > 0
             ? smoothed_.trace / smoothed_.gradient_squared
             : record::not_known;
}

double NoiseScale::tokens() const {
  return sequences() * static_cast<double>(context_);
}

std::string NoiseScale::packed() const {
  return fmt::format("{} {:a} {:a}", count_, smoothed_.gradient_squared, smoothed_.trace);
}

void NoiseScale::continue_from(const std::string& packed, const std::string& checkpoint) {
  if (packed.empty())
    return;
  NoiseEstimate estimate;
  std::int64_t count = -1;
  int end = 0;  // streams do not read hexadecimal numbers
  const int read = std::sscanf(packed.c_str(), "%" SCNd64 " %la %la%n", &count,
                               &estimate.gradient_squared, &estimate.trace, &end);
  if (read != 3 || static_cast<std::size_t>(end) != packed.size() || count < 0 ||
      !std::isfinite(estimate.gradient_squared) || !std::isfinite(estimate.trace))
    throw UserError(Place{checkpoint},
                    fmt::format("its noise_scale is '{}', not a count and two numbers", packed));
  count_ = count;
  smoothed_ = estimate;
}

}  // namespace trireme::train
