// SPDX-License-Identifier: Apache-2.0
// The Muon rule: hidden matrices are updated by their orthogonalized momentum, all other parameters
// by AdamW with the same config (formulas: ops/optimizer/muon.hpp and
// ops/optimizer/orthogonalize.hpp).
//
// The state is that of AdamW: the momentum is stored as the first moment, with the same rounding.
// Hidden matrices have no second moment.
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
  void begin_step(std::int64_t step, std::int64_t total_steps, std::int64_t update) override;
  void prepare(const Update& update,
               const ops::GradientNorm& norm,
               device::Stream& stream) const override;
  void update(std::span<const Update> updates,
              const ops::GradientNorm& norm,
              device::Stream& stream) override;

 private:
  AdamW adamw_;
  std::vector<OptimizerConfig> configs_;  // by group
  std::vector<ops::MuonStep> numbers_;    // of the current step
};

}  // namespace trireme::optim
