// SPDX-License-Identifier: Apache-2.0
// AdamW as a rule: two moments per element (ops/optimizer/adamw.hpp has the formula), kept as the
// deck's moment_dtype, and numbers per group that are computed once per step.
#pragma once

#include <cstdint>
#include <vector>

#include "base/random.hpp"

#include "ops/optimizer/adamw.hpp"

#include "optim/rule.hpp"

namespace trireme::optim {

/// The numbers of step `step`, counted from 1, by the deck's schedules of its own learning rate and
/// weight decay.
ops::AdamwStep step_of(const OptimizerConfig& config, std::int64_t step, std::int64_t total_steps);

/// By group: the deck with the group's learning rate and weight decay.
std::vector<OptimizerConfig> configs_of(const OptimizerConfig& config, const Groups& groups);

class AdamW final : public Rule {
 public:
  AdamW(const OptimizerConfig& config, const Groups& groups, std::uint64_t seed);

  static layout::StateSlots state(const OptimizerConfig& config);
  [[nodiscard]] const layout::StateSlots& slots() const override { return slots_; }
  void begin_step(std::int64_t step, std::int64_t total_steps) override;
  void update(std::span<const Update> updates,
              const ops::GradientNorm& norm,
              device::Stream& stream) override;

  /// Where the elements of a piece are in the present step's random sequence.
  [[nodiscard]] ops::MomentRounding rounding_of(const Update& update) const;

 private:
  const layout::StateSlots slots_;
  const RandomKey key_;
  std::uint64_t step_ = 0;
  std::vector<OptimizerConfig> configs_;  // by group
  std::vector<ops::AdamwStep> numbers_;   // of the present step
  std::vector<ops::AdamwPiece> pieces_;   // of the present call
};

}  // namespace trireme::optim
