// SPDX-License-Identifier: Apache-2.0
#include "optim/rule.hpp"

#include <algorithm>
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

Rule::Rule(const OptimizerConfig& config, const Groups& groups, std::uint64_t seed)
    : key_(RandomKey::of(seed, Draw::moments)),
      configs_(groups.all.size(), config),
      adamw_(groups.all.size()),
      muon_(groups.all.size()) {
  for (std::size_t i = 0; i < configs_.size(); ++i) {
    configs_[i].learning_rate = groups.all[i].learning_rate;
    configs_[i].weight_decay = groups.all[i].weight_decay;
  }
}

void Rule::begin_step(std::int64_t step, std::int64_t total_steps, std::int64_t update) {
  update_ = static_cast<std::uint64_t>(update);
  for (std::size_t i = 0; i < configs_.size(); ++i) {
    adamw_[i] = step_of(configs_[i], step, total_steps, update);
    const MuonConfig& muon = configs_[i].muon;
    const double mean = momentum(muon, step);
    muon_[i] = {.learning_rate = adamw_[i].learning_rate,
                .weight_decay = adamw_[i].weight_decay,
                .momentum = static_cast<float>(mean),
                .gain = static_cast<float>(1 - mean),
                .nesterov = muon.nesterov};
  }
}

void Rule::prepare(const Update& update,
                   const ops::GradientNorm& norm,
                   device::Stream& stream) const {
  run(ops::MuonDirection{.gradient = update.gradient,
                         .m = update.state[1],
                         .step = muon_[update.group],
                         .rounding = rounding_of(update),
                         .norm = &norm},
      stream);
}

void Rule::update(std::span<const Update> updates,
                  const ops::GradientNorm& norm,
                  device::Stream& stream) {
  while (!updates.empty()) {
    const auto matrix = std::ranges::find_if(updates, &Update::whole);
    const auto others = static_cast<std::size_t>(matrix - updates.begin());
    ranges_.clear();
    for (const Update& update : updates.first(others))
      ranges_.push_back({.parameter = update.parameter,
                         .master = update.state[0],
                         .m = update.state[1],
                         .v = update.state[2],
                         .gradient = update.gradient,
                         .step = adamw_[update.group],
                         .rounding = rounding_of(update),
                         .norm = &norm});
    ops::run(ranges_, stream);
    if (matrix == updates.end())
      return;
    run(ops::MuonUpdate{.parameter = matrix->parameter,
                        .master = matrix->state[0],
                        .direction = matrix->gradient,
                        .step = muon_[matrix->group],
                        .norm = &norm},
        stream);
    updates = updates.subspan(others + 1);
  }
}

ops::MomentRounding Rule::rounding_of(const Update& update) const {
  return {key_, update_, at(update.index), update.begin};
}

layout::StateSlots state_slots(const OptimizerConfig& config) {
  const DType kept = dtype_of(config.moment_dtype);
  const bool local = config.outer.on();
  layout::StateSlots slots{{"master", "master weights"},
                           {"moment1", "first moments", true, kept, local},
                           {"moment2", "second moments", config.kind != Kind::muon, kept, local}};
  if (local) {
    slots.push_back({"outer_begin", "weights before local steps"});
    slots.push_back({"outer_momentum", "outer momentum"});
  }
  return slots;
}

}  // namespace trireme::optim
