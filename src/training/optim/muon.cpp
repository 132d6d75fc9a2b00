// SPDX-License-Identifier: Apache-2.0
#include "optim/muon.hpp"

#include <algorithm>

#include "optim/schedule.hpp"

namespace trireme::optim {

Muon::Muon(const OptimizerConfig& config, const Groups& groups, std::uint64_t seed)
    : adamw_(config, groups, seed),
      configs_(configs_of(config, groups)),
      numbers_(groups.all.size()) {}

layout::StateSlots Muon::state(const OptimizerConfig& config) {
  layout::StateSlots slots = AdamW::state(config);
  slots.back().of_matrices = false;
  return slots;
}

void Muon::begin_step(std::int64_t step, std::int64_t total_steps, std::int64_t update) {
  adamw_.begin_step(step, total_steps, update);
  for (std::size_t i = 0; i < configs_.size(); ++i) {
    const OptimizerConfig& own = configs_[i];
    const double mean = momentum(own.muon, step);
    numbers_[i] = {.learning_rate = static_cast<float>(learning_rate(own, step, total_steps)),
                   .weight_decay = static_cast<float>(weight_decay(own, step, total_steps)),
                   .momentum = static_cast<float>(mean),
                   .gain = static_cast<float>(1 - mean),
                   .nesterov = own.muon.nesterov};
  }
}

void Muon::prepare(const Update& update,
                   const ops::GradientNorm& norm,
                   device::Stream& stream) const {
  run(ops::MuonDirection{.gradient = update.gradient,
                         .m = update.state[1],
                         .step = numbers_[update.group],
                         .rounding = adamw_.rounding_of(update),
                         .norm = &norm},
      stream);
}

void Muon::update(std::span<const Update> updates,
                  const ops::GradientNorm& norm,
                  device::Stream& stream) {
  while (!updates.empty()) {
    const auto matrix = std::ranges::find_if(updates, &Update::whole);
    const auto others = static_cast<std::size_t>(matrix - updates.begin());
    adamw_.update(updates.first(others), norm, stream);
    if (matrix == updates.end())
      return;
    run(ops::MuonUpdate{.parameter = matrix->parameter,
                        .master = matrix->state[0],
                        .direction = matrix->gradient,
                        .step = numbers_[matrix->group],
                        .norm = &norm},
        stream);
    updates = updates.subspan(others + 1);
  }
}

}  // namespace trireme::optim
