// SPDX-License-Identifier: Apache-2.0
#include "optim/adamw.hpp"

#include <cmath>

#include "optim/schedule.hpp"

namespace trireme::optim {

ops::AdamwStep step_of(const OptimizerConfig& config,
                       std::int64_t step,
                       std::int64_t total_steps,
                       std::int64_t update) {
  const auto n = static_cast<double>(update);
  ops::AdamwStep numbers;
  numbers.learning_rate = static_cast<float>(learning_rate(config, step, total_steps));
  numbers.beta1 = static_cast<float>(config.beta1);
  numbers.beta2 = static_cast<float>(config.beta2);
  numbers.gain1 = static_cast<float>(1 - config.beta1);
  numbers.gain2 = static_cast<float>(1 - config.beta2);
  numbers.epsilon = static_cast<float>(config.epsilon);
  numbers.weight_decay = static_cast<float>(weight_decay(config, step, total_steps));
  numbers.correction1 = static_cast<float>(1 - std::pow(config.beta1, n));
  numbers.correction2 = static_cast<float>(1 - std::pow(config.beta2, n));
  return numbers;
}

std::vector<OptimizerConfig> configs_of(const OptimizerConfig& config, const Groups& groups) {
  std::vector<OptimizerConfig> configs;
  for (const Group& group : groups.all) {
    OptimizerConfig own = config;
    own.learning_rate = group.learning_rate;
    own.weight_decay = group.weight_decay;
    configs.push_back(std::move(own));
  }
  return configs;
}

AdamW::AdamW(const OptimizerConfig& config, const Groups& groups, std::uint64_t seed)
    : key_(RandomKey::of(seed, Draw::moments)),
      configs_(configs_of(config, groups)),
      numbers_(groups.all.size()) {}

layout::StateSlots AdamW::state(const OptimizerConfig& config) {
  const DType kept = dtype_of(config.moment_dtype);
  return {{"master", "master weights"},
          {"moment1", "first moments", true, kept},
          {"moment2", "second moments", true, kept}};
}

void AdamW::begin_step(std::int64_t step, std::int64_t total_steps, std::int64_t update) {
  update_ = static_cast<std::uint64_t>(update);
  for (std::size_t i = 0; i < configs_.size(); ++i)
    numbers_[i] = step_of(configs_[i], step, total_steps, update);
}

void AdamW::update(std::span<const Update> updates,
                   const ops::GradientNorm& norm,
                   device::Stream& stream) {
  ranges_.clear();
  for (const Update& update : updates)
    ranges_.push_back({.parameter = update.parameter,
                       .master = update.state[0],
                       .m = update.state[1],
                       .v = update.state[2],
                       .gradient = update.gradient,
                       .step = numbers_[update.group],
                       .rounding = rounding_of(update),
                       .norm = &norm});
  ops::run(ranges_, stream);
}

ops::MomentRounding AdamW::rounding_of(const Update& update) const {
  return {key_, update_, at(update.index), update.begin};
}

}  // namespace trireme::optim
