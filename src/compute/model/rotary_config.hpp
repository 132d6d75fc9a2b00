// SPDX-License-Identifier: Apache-2.0
// The deck section `model.rotary_scaling`.
#pragma once

#include <cstdint>

#include "base/key.hpp"

namespace trireme::model {

/// Of the angles of rotary positions, for contexts longer than the original one. What is not given
/// is the preset's, else none.
struct RotaryScalingConfig {
  Or<double> factor{};
  Or<double> low_freq_factor{};
  Or<double> high_freq_factor{};
  Or<std::int64_t> original_context{};
};

template <class V>
void describe(V& v, RotaryScalingConfig& c) {
  v("factor", c.factor,
    {.help = "Divides the frequencies of wavelengths that the original context does not hold. "
             "auto: the preset's, else 1: no scaling.",
     .min = 1.0,
     .max = 1e6,
     .change = Change::never});
  v("low_freq_factor", c.low_freq_factor,
    {.help = "Wavelengths above original_context divided by this are scaled in full. auto: 1.",
     .min = 0.0,
     .max = 1e6,
     .above_min = true,
     .change = Change::never});
  v("high_freq_factor", c.high_freq_factor,
    {.help = "Wavelengths below original_context divided by this are not scaled; those between are "
             "scaled in part. auto: 4.",
     .min = 0.0,
     .max = 1e6,
     .above_min = true,
     .change = Change::never});
  v("original_context", c.original_context,
    {.unit = "tokens",
     .help = "The context before it was extended. auto: 8192.",
     .min = 1,
     .max = 1 << 20,
     .change = Change::never});
}

}  // namespace trireme::model
