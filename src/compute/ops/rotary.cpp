// SPDX-License-Identifier: Apache-2.0
#include "ops/rotary.hpp"

#include <cmath>
#include <numbers>

#include "ops/calls/rotary.hpp"
#include "ops/dispatch.hpp"

namespace trireme::ops {
namespace {

double scaled_frequency(double frequency, const RotaryScaling& s) {
  const auto original = static_cast<double>(s.original_context);
  const double turns = original * frequency / (2 * std::numbers::pi);  // within that context
  if (turns > s.high_freq_factor)
    return frequency;
  if (turns < s.low_freq_factor)
    return frequency / s.factor;
  const double share = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1 - share) * frequency / s.factor + share * frequency;
}

}  // namespace

std::vector<double> rotary_frequencies(std::int64_t head_channels,
                                       double theta,
                                       const RotaryScaling& scaling) {
  TRIREME_EXPECT(head_channels >= 2 && head_channels % 2 == 0 && theta > 0,
                 "rotary positions of {} channels, theta {}", head_channels, theta);
  TRIREME_EXPECT(!scaling.active() || scaling.high_freq_factor > scaling.low_freq_factor,
                 "rotary scaling between {} and {} turns", scaling.low_freq_factor,
                 scaling.high_freq_factor);
  std::vector<double> frequencies;
  for (std::int64_t j = 0; j < head_channels / 2; ++j) {
    const double exponent = -2.0 * static_cast<double>(j) / static_cast<double>(head_channels);
    const double frequency = std::pow(theta, exponent);
    frequencies.push_back(scaling.active() ? scaled_frequency(frequency, scaling) : frequency);
  }
  return frequencies;
}

std::vector<float> rotary_table(std::int64_t positions,
                                std::int64_t head_channels,
                                double theta,
                                const RotaryScaling& scaling) {
  const std::vector<double> frequencies = rotary_frequencies(head_channels, theta, scaling);
  std::vector<float> table;
  table.reserve(static_cast<std::size_t>(positions * head_channels));
  for (std::int64_t t = 0; t < positions; ++t) {
    for (const double f : frequencies)
      table.push_back(static_cast<float>(std::cos(static_cast<double>(t) * f)));
    for (const double f : frequencies)
      table.push_back(static_cast<float>(std::sin(static_cast<double>(t) * f)));
  }
  return table;
}

void rotate(View packed,
            ConstView table,
            ConstView positions,
            const RotaryShape& shape,
            Turn turn,
            device::Stream& stream) {
  const RotaryShape& s = shape;
  TRIREME_EXPECT(s.heads >= 1 && s.head_channels >= 2 && s.head_channels % 2 == 0 && s.time >= 1 &&
                     s.heads * s.head_channels <= s.stride && packed.elements % s.stride == 0,
                 "{} elements to rotate: {} heads of {} in rows of {}", packed.elements, s.heads,
                 s.head_channels, s.stride);
  const std::int64_t rows = packed.elements / s.stride;
  TRIREME_EXPECT(table.dtype == DType::f32 && table.elements % s.head_channels == 0 &&
                     (!positions.empty() || table.elements >= s.time * s.head_channels),
                 "a table of {} {} for {} positions of {} channels", table.elements,
                 name(table.dtype), s.time, s.head_channels);
  TRIREME_EXPECT(positions.empty() ? rows % s.time == 0
                                   : positions.elements == rows && positions.dtype == DType::i32,
                 "{} positions of {} rows in sequences of {}", positions.elements, rows, s.time);
  with_float_type(packed.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(Rotate<T>{packed.as<T>(), table.as<float>(), pointer_or_null<std::int32_t>(positions),
                      rows, shape, turn == Turn::back ? -1.0F : 1.0F},
            stream);
  });
}

}  // namespace trireme::ops
