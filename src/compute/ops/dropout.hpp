// SPDX-License-Identifier: Apache-2.0
// The dropout mask: a pure function of (seed, site, global sample, element within the sample). It
// is never stored; backward computes it again. Results do not depend on ranks, threads or
// micro-batches, because these are not arguments.
//
// The number of the first sample is read from device memory when the operation runs, so a captured
// micro-step (device.hpp) uses the masks of the batch that is in memory at each launch.
//
// Element e of sample s at site i is kept when uniform(word[e % 4]) >= rate, where word =
// philox(key, counter = (i << 40) + e / 4, counter_high = s); kept elements are divided by (1 -
// rate).
#pragma once

#include <cstdint>

#include "base/random.hpp"

namespace trireme::ops {

/// Elements of a sample at one site: 4 of each of the 2^40 counters.
inline constexpr std::int64_t most_dropped = std::int64_t{1} << 42U;

struct Dropout {
  float rate = 0;
  RandomKey key;
  /// Global index of batch row 0, in memory of the stream's device; the rows of a micro-batch are
  /// consecutive samples. Read only where the rate is above 0.
  const std::uint64_t* first_sample = nullptr;
  std::uint32_t site = 0;  ///< number of the place in the model

  [[nodiscard]] TRIREME_HOST_DEVICE bool active() const { return rate > 0; }
};

/// 0 or 1/(1 - rate) for one element.
TRIREME_HOST_DEVICE inline float dropout_factor(const Dropout& d,
                                                std::uint64_t row,
                                                std::uint64_t element) {
  const auto words =
      philox(d.key, (std::uint64_t{d.site} << 40U) + element / 4, *d.first_sample + row);
  // Selected, not indexed: on a GPU, an indexed array is in memory.
  const bool late = element % 4 >= 2, odd = element % 2 != 0;
  const std::uint32_t first = late ? words.w[2] : words.w[0];
  const std::uint32_t second = late ? words.w[3] : words.w[1];
  return uniform(odd ? second : first) < d.rate ? 0.0F : 1.0F / (1.0F - d.rate);
}

}  // namespace trireme::ops
