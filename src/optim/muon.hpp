// SPDX-License-Identifier: Apache-2.0
// Muon as a rule: hidden matrices by their momentum, orthogonalized, all else by AdamW with the
// same deck (ops/optimizer/muon.hpp and ops/optimizer/orthogonalize.hpp have the formulas).
//
// The state is AdamW's: the momentum is the first moment, and rounded as one. A matrix has no second
// one.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/optimizer/muon.hpp"

#include "optim/adamw.hpp"

namespace trireme::optim {

class Muon final : public Rule {
 public:
  Muon(const OptimizerConfig& config, const Groups& groups, std::uint64_t seed);

  static layout::StateSlots state(const OptimizerConfig& config);
  [[nodiscard]] const layout::StateSlots& slots() const override { return slots_; }
  void begin_step(std::int64_t step, std::int64_t total_steps) override;
  void prepare(const Update& update,
               const ops::GradientNorm& norm,
               device::Stream& stream) const override;
  void update(std::span<const Update> updates,
              const ops::GradientNorm& norm,
              device::Stream& stream) override;

 private:
  const layout::StateSlots slots_;
  AdamW adamw_;
  std::vector<OptimizerConfig> configs_;  // by group
  std::vector<ops::MuonStep> numbers_;    // of the present step
};

}  // namespace trireme::optim
