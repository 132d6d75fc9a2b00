// SPDX-License-Identifier: Apache-2.0
#include "optim/rule.hpp"

#include <type_traits>

#include "optim/adamw.hpp"
#include "optim/muon.hpp"

namespace trireme::optim {
namespace {

/// Calls body(std::type_identity<R>{}) with the rule R of `kind`. Add a line for a new rule.
template <class Body>
auto with_rule(Kind kind, const Body& body) {
  switch (kind) {
    case Kind::adamw:
      break;
    case Kind::muon:
      return body(std::type_identity<Muon>{});
  }
  return body(std::type_identity<AdamW>{});
}

}  // namespace

std::unique_ptr<Rule> make_rule(const OptimizerConfig& config,
                                const Groups& groups,
                                std::uint64_t seed) {
  return with_rule(config.kind, [&](auto rule) -> std::unique_ptr<Rule> {
    return std::make_unique<typename decltype(rule)::type>(config, groups, seed);
  });
}

layout::StateSlots state_slots(const OptimizerConfig& config) {
  auto slots =
      with_rule(config.kind, [&](auto rule) { return decltype(rule)::type::state(config); });
  if (config.outer.on()) {
    slots.push_back({"outer_begin", "weights before local steps"});
    slots.push_back({"outer_momentum", "outer momentum"});
  }
  return slots;
}

}  // namespace trireme::optim
