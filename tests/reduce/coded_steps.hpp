// SPDX-License-Identifier: Apache-2.0
// The steps of steps.hpp with compressed gradients, computed parameter by parameter.
#pragma once

#include <vector>

#include "ops/block_code_reference.hpp"

#include "reduce/steps.hpp"

namespace trireme::testing {

/// Stores the rest of values + error that was not sent; returns the part that was sent.
inline test::Values send(reduce::GradientDType wire,
                         const std::vector<float>& values,
                         test::Values& error) {
  test::Values both;
  for (std::size_t i = 0; i < values.size(); ++i)
    both.push_back(static_cast<double>(values[i] + static_cast<float>(error[i])));
  constexpr ops::BlockCode codes[] = {ops::BlockCode::int8, ops::BlockCode::fp8,
                                      ops::BlockCode::top4, ops::BlockCode::top1};
  test::Values sent = test::decoded(
      codes[static_cast<int>(wire) - static_cast<int>(reduce::GradientDType::int8)], both);
  for (std::size_t i = 0; i < both.size(); ++i) error[i] = both[i] - sent[i];
  return sent;
}

/// As train_plainly(), with gradients sent as int8 or fp8; one micro-step.
inline std::vector<float> train_in_codes(const Setting& setting, int steps, int ranks) {
  std::vector<float> all;
  const auto parameters = table();
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const auto elements = static_cast<std::size_t>(parameters[p].elements());
    std::vector<float> values(elements);
    for (std::size_t i = 0; i < elements; ++i)
      values[i] = initial_value(p, static_cast<std::int64_t>(i));
    std::vector<test::Values> errors(static_cast<std::size_t>(ranks) + 1, test::Values(elements));
    for (int step = 0; step < steps; ++step) {
      std::vector<float> sum(elements);
      for (int rank = 0; rank < ranks; ++rank) {
        std::vector<float> gradient(elements);
        for (std::size_t i = 0; i < elements; ++i) {
          for (int times = 0; times <= rank; ++times) gradient[i] += values[i];
          gradient[i] += pattern(step, static_cast<std::int64_t>(i));
        }
        const test::Values sent =
            send(setting.gradient_dtype, gradient, errors[static_cast<std::size_t>(rank)]);
        for (std::size_t i = 0; i < elements; ++i) sum[i] += static_cast<float>(sent[i]);
      }
      if (setting.shard == layout::Shard::none) {
        const test::Values sent = send(setting.gradient_dtype, sum, errors.back());
        for (std::size_t i = 0; i < elements; ++i) sum[i] = static_cast<float>(sent[i]);
      }
      for (std::size_t i = 0; i < elements; ++i) {
        values[i] += sum[i];
        if (setting.dtype == DType::bf16)
          values[i] = static_cast<float>(Bf16(values[i]));
      }
    }
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace trireme::testing
