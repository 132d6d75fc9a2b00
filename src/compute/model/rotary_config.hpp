// SPDX-License-Identifier: Apache-2.0
// The deck section `model.rotary_scaling`.
#pragma once

#include <cstdint>

#include "base/key.hpp"

namespace trireme::model {

/// Scaling of rotary positions for contexts longer than in the original training, as in Llama 3.1.
/// Keys that are not given come from the preset; without one there is no scaling.
struct RotaryScalingConfig {
  Or<double> factor{};
  Or<double> low_freq_factor{};
  Or<double> high_freq_factor{};
  Or<std::int64_t> original_context{};
};

template <class V>
void describe(V& v, RotaryScalingConfig& c) {
  v("factor", c.factor,
    {.help = "Divisor of the frequencies whose wavelengths exceed the original context. auto: from "
             "the preset, else 1, no scaling.",
     .min = 1.0,
     .max = 1e6,
     .change = Change::never});
  v("low_freq_factor", c.low_freq_factor,
    {.help = "Wavelengths above original_context / low_freq_factor are scaled by the full factor. "
             "auto: 1.",
     .min = 0.0,
     .max = 1e6,
     .above_min = true,
     .change = Change::never});
  v("high_freq_factor", c.high_freq_factor,
    {.help = "Wavelengths below original_context / high_freq_factor are not scaled; those between "
             "the two limits are scaled partly. auto: 4.",
     .min = 0.0,
     .max = 1e6,
     .above_min = true,
     .change = Change::never});
  v("original_context", c.original_context,
    {.unit = "tokens",
     .help = "Context length of the original training. auto: 8192.",
     .min = 1,
     .max = 1 << 20,
     .change = Change::never});
}

}  // namespace trireme::model
