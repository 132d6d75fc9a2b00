// SPDX-License-Identifier: Apache-2.0
// The deck section `model.rotary_scaling`.
#pragma once

#include <cstdint>

#include "base/key.hpp"

#include "ops/rotary.hpp"

namespace trireme::model {

/// Scaling of rotary positions for contexts longer than in the original training. Keys that are not
/// given come from the preset; without one there is no scaling.
struct RotaryScalingConfig {
  Or<ops::RotaryScalingType> type{};
  Or<double> factor{};
  Or<double> low_freq_factor{};
  Or<double> high_freq_factor{};
  Or<std::int64_t> original_context{};
  Or<double> beta_slow{};
  Or<double> beta_fast{};
  Or<double> attention_factor{};
};

/// Passes keys to `v` that cannot change in a trained model.
template <class V>
struct FixedKeys {
  V& v;

  template <class T>
  void operator()(const char* name, T& value, Key<T> key) const {
    key.change = Change::never;
    v(name, value, key);
  }
};

template <class V>
void describe(V& v, RotaryScalingConfig& c) {
  const FixedKeys<V> f{v};
  f("type", c.type,
    {.help = "Which frequencies are divided by factor. llama3 and yarn: those whose wavelengths "
             "exceed the original context. linear: all. auto: llama3."});
  f("factor", c.factor,
    {.help = "Divisor of frequencies. auto: from the preset, else 1, no scaling.",
     .min = 1.0,
     .max = 1e6});
  f("low_freq_factor", c.low_freq_factor,
    {.help = "llama3: wavelengths above original_context / low_freq_factor are scaled by the full "
             "factor. auto: 1.",
     .min = 0.0,
     .max = 1e6,
     .above_min = true});
  f("high_freq_factor", c.high_freq_factor,
    {.help = "llama3: wavelengths below original_context / high_freq_factor are not scaled; those "
             "between the two limits are scaled partly. auto: 4.",
     .min = 0.0,
     .max = 1e6,
     .above_min = true});
  f("original_context", c.original_context,
    {.unit = "tokens",
     .help = "Context length of the original training. auto: 8192.",
     .min = 1,
     .max = 1 << 20});
  f("beta_slow", c.beta_slow,
    {.help = "yarn: as low_freq_factor. auto: 1.", .min = 0.0, .max = 1e6, .above_min = true});
  f("beta_fast", c.beta_fast,
    {.help = "yarn: as high_freq_factor. auto: 32.", .min = 0.0, .max = 1e6, .above_min = true});
  f("attention_factor", c.attention_factor,
    {.help = "yarn: multiplies rotated queries and keys. auto: 1 + 0.1 x log(factor).",
     .min = 0.0,
     .max = 1e3,
     .above_min = true});
}

}  // namespace trireme::model
