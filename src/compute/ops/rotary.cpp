// SPDX-License-Identifier: Apache-2.0
#include "ops/rotary.hpp"

#include <cmath>
#include <numbers>

#include "ops/dispatch.hpp"

namespace trireme::ops {
namespace {

double scaled_frequency(double frequency, const RotaryScaling& s) {
  const auto original = static_cast<double>(s.original_context);
  const double rotations = original * frequency / (2 * std::numbers::pi);  // within that context
  if (rotations > s.high_freq_factor)
    return frequency;
  if (rotations < s.low_freq_factor)
    return frequency / s.factor;
  const double share = (rotations - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1 - share) * frequency / s.factor + share * frequency;
}

}  // namespace

std::vector<double> rotary_frequencies(std::int64_t head_channels,
                                       double theta,
                                       const RotaryScaling& scaling) {
  TRIREME_EXPECT(head_channels >= 2 && head_channels % 2 == 0 && theta > 0,
                 "rotary positions of {} channels, theta {}", head_channels, theta);
  TRIREME_EXPECT(!scaling.active() || scaling.high_freq_factor > scaling.low_freq_factor,
                 "rotary scaling between {} and {} rotations", scaling.low_freq_factor,
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

void run(const Rotate& call, device::Stream& stream) {
  const RotaryShape& s = call.shape;
  TRIREME_EXPECT(s.heads >= 1 && s.head_channels >= 2 && s.head_channels % 2 == 0 && s.time >= 1 &&
                     s.heads * s.head_channels <= s.stride,
                 "a rotation of {} heads of {} in rows of {}, {} to a sequence", s.heads,
                 s.head_channels, s.stride, s.time);
  expect_rows(call.packed, s.stride);
  expect_positions(call.name, call.table, call.positions, call.packed.elements / s.stride, s);
  enqueue(call, call.packed.dtype, stream);
}

}  // namespace trireme::ops
