// SPDX-License-Identifier: Apache-2.0
// The AdamW rule: two moments per element (formula: ops/optimizer/adamw.hpp), stored in the deck's
// moment_dtype, and the coefficients of each group, computed once per step.
#pragma once

#include <cstdint>
#include <vector>

#include "base/random.hpp"

#include "ops/optimizer/adamw.hpp"

#include "optim/rule.hpp"

namespace trireme::optim {

/// The coefficients of step `step`, counted from 1: learning rate and weight decay follow the
/// schedules of `config`, and the bias correction the number of the update.
ops::AdamwStep step_of(const OptimizerConfig& config,
                       std::int64_t step,
                       std::int64_t total_steps,
                       std::int64_t update);

/// By group: a copy of `config` with the group's learning rate and weight decay.
std::vector<OptimizerConfig> configs_of(const OptimizerConfig& config, const Groups& groups);

class AdamW final : public Rule {
 public:
  AdamW(const OptimizerConfig& config, const Groups& groups, std::uint64_t seed);

  static layout::StateSlots state(const OptimizerConfig& config);
  void begin_step(std::int64_t step, std::int64_t total_steps, std::int64_t update) override;
  void update(std::span<const Update> updates,
              const ops::GradientNorm& norm,
              device::Stream& stream) override;

  /// Position of a piece's elements in the random sequence of the current step.
  [[nodiscard]] ops::MomentRounding rounding_of(const Update& update) const;

 private:
  const RandomKey key_;
  std::uint64_t update_ = 0;
  std::vector<OptimizerConfig> configs_;  // by group
  std::vector<ops::AdamwStep> numbers_;   // of the current step
  std::vector<ops::Adamw> ranges_;        // of the current call
};

}  // namespace trireme::optim
