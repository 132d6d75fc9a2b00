// SPDX-License-Identifier: Apache-2.0
#include "optim/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.hpp"

namespace trireme::optim {
namespace {

/// Position of `step` between `begin` (0) and `end` (1), clamped to [0, 1].
double progress(std::int64_t step, std::int64_t begin, std::int64_t end) {
  if (step <= begin)
    return 0;
  if (step >= end)
    return 1;
  return static_cast<double>(step - begin) / static_cast<double>(end - begin);
}

double rate(const ScheduleConfig& schedule,
            double peak,
            std::int64_t step,
            std::int64_t total_steps) {
  TRIREME_EXPECT(step >= 1 && total_steps >= 1, "step {} of {}", step, total_steps);
  step = std::min(step, total_steps);
  if (schedule.sweep_from > 0)
    return peak * std::pow(schedule.sweep_from, 1 - progress(step, 1, total_steps));
  if (step < schedule.warmup_steps)
    return peak * static_cast<double>(step) / static_cast<double>(schedule.warmup_steps);

  const double rest = schedule.final_fraction;
  const double way = progress(step, last_peak_step(schedule, total_steps), total_steps);
  switch (schedule.kind) {
    case Schedule::constant:
      return peak;
    case Schedule::linear:
      return peak * (1 - (1 - rest) * way);
    case Schedule::cosine:
      return peak * (rest + (1 - rest) * 0.5 * (1 + std::cos(std::numbers::pi * way)));
    case Schedule::wsd:
      return peak *
             (1 - (1 - rest) * (schedule.decay_shape == DecayShape::linear ? way : std::sqrt(way)));
  }
  return peak;
}

}  // namespace

double learning_rate(const OptimizerConfig& config, std::int64_t step, std::int64_t total_steps) {
  return rate(config.schedule, config.learning_rate, step, total_steps);
}

double weight_decay(const OptimizerConfig& config, std::int64_t step, std::int64_t total_steps) {
  TRIREME_EXPECT(step >= 1 && total_steps >= 1, "step {} of {}", step, total_steps);
  const double way = progress(step, 1, total_steps);
  switch (config.weight_decay_schedule) {
    case DecaySchedule::constant:
      break;
    case DecaySchedule::linear:
      return config.weight_decay * (1 - way);
    case DecaySchedule::cosine:
      return config.weight_decay * 0.5 * (1 + std::cos(std::numbers::pi * way));
    case DecaySchedule::rate:
      return config.weight_decay * rate(config.schedule, 1, step, total_steps);
  }
  return config.weight_decay;
}

double momentum(const MuonConfig& config, std::int64_t step) {
  TRIREME_EXPECT(step >= 1, "step {}", step);
  if (step > config.momentum_warmup_steps)
    return config.momentum;
  const double way =
      static_cast<double>(step - 1) / static_cast<double>(config.momentum_warmup_steps);
  return config.momentum_start + (config.momentum - config.momentum_start) * way;
}

std::int64_t last_peak_step(const ScheduleConfig& schedule, std::int64_t total_steps) {
  TRIREME_EXPECT(total_steps >= 1, "{} steps", total_steps);
  if (schedule.kind == Schedule::constant)
    return total_steps;
  std::int64_t last = std::max<std::int64_t>(schedule.warmup_steps, 1);
  if (schedule.kind == Schedule::wsd) {
    // 0.29 of 100 steps is 29 steps, although the product is slightly less.
    const auto decay_steps = static_cast<std::int64_t>(
        schedule.decay_fraction * static_cast<double>(total_steps) * (1 + 1e-12));
    last = std::max(last, total_steps - decay_steps);
  }
  return std::min(last, total_steps);
}

}  // namespace trireme::optim
