// SPDX-License-Identifier: Apache-2.0
#include "ops/rotary.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/dispatch.hpp"

namespace trireme::ops {
namespace {

/// The share of frequency f[j] that is not divided by the factor.
double unscaled_share(
    double frequency, double j, double channels, double theta, const RotaryScaling& s) {
  if (s.type == RotaryScalingType::linear)
    return 0;
  const auto original = static_cast<double>(s.original_context);
  if (s.type == RotaryScalingType::llama3) {
    const double rotations = original * frequency / (2 * std::numbers::pi);
    return std::clamp((rotations - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor),
                      0.0, 1.0);
  }
  const auto channel_of = [&](double rotations) {  // whose frequency makes this many rotations
    return channels * std::log(original / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(theta));
  };
  const double first = std::max(std::floor(channel_of(s.beta_fast)), 0.0);
  const double last = std::min(std::ceil(channel_of(s.beta_slow)), channels - 1);
  return 1 - std::clamp((j - first) / (last == first ? 0.001 : last - first), 0.0, 1.0);
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
    const double share = scaling.active()
                             ? unscaled_share(frequency, static_cast<double>(j),
                                              static_cast<double>(head_channels), theta, scaling)
                             : 0;
    frequencies.push_back((1 - share) * frequency / scaling.factor + share * frequency);
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
  const double scale = scaling.attention_factor;
  for (std::int64_t t = 0; t < positions; ++t) {
    for (const double f : frequencies)
      table.push_back(static_cast<float>(scale * std::cos(static_cast<double>(t) * f)));
    for (const double f : frequencies)
      table.push_back(static_cast<float>(scale * std::sin(static_cast<double>(t) * f)));
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
