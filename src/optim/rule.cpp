// SPDX-License-Identifier: Apache-2.0
#include "optim/rule.hpp"

#include "optim/adamw.hpp"
#include "optim/muon.hpp"

namespace trireme::optim {

std::unique_ptr<Rule> make_rule(const OptimizerConfig& config,
                                const Groups& groups,
                                std::uint64_t seed) {
  if (config.kind == Kind::muon)
    return std::make_unique<Muon>(config, groups, seed);
  return std::make_unique<AdamW>(config, groups, seed);
}

layout::StateSlots state_slots(const OptimizerConfig& config) {
  return config.kind == Kind::muon ? Muon::state(config) : AdamW::state(config);
}

}  // namespace trireme::optim
