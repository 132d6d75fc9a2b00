// SPDX-License-Identifier: Apache-2.0
#include "optim/groups.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fnmatch.h>

namespace trireme::optim {

bool matches(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

Groups resolve_groups(const OptimizerConfig& config,
                      std::span<const layout::Parameter> parameters) {
  Groups groups;
  for (const layout::Parameter& parameter : parameters) {
    const auto rule = std::ranges::find_if(
        config.groups, [&](const GroupRule& one) { return matches(one.match, parameter.name); });
    Group group{.rule = -1,
                .match = {},
                .learning_rate = config.learning_rate,
                .weight_decay = parameter.decay ? config.weight_decay : 0};
    if (rule != config.groups.end()) {
      group.rule = static_cast<int>(rule - config.groups.begin());
      group.match = rule->match;
      group.learning_rate = rule->learning_rate.value_or(group.learning_rate);
      group.weight_decay = rule->weight_decay.value_or(group.weight_decay);
    }
    auto known = std::ranges::find_if(groups.all, [&](const Group& one) {
      return one.rule == group.rule && one.learning_rate == group.learning_rate &&
             one.weight_decay == group.weight_decay;
    });
    if (known == groups.all.end())
      known = groups.all.insert(known, group);
    ++known->parameters;
    known->elements += parameter.elements();
    groups.of_parameter.push_back(static_cast<std::size_t>(known - groups.all.begin()));
  }
  return groups;
}

std::string groups_text(const Groups& groups) {
  std::string text = fmt::format("{:<32}{:>12}{:>12}{:>15}{:>14}\n", "parameter group",
                                 "parameters", "elements", "learning rate", "weight decay");
  for (const Group& group : groups.all)
    text +=
        fmt::format("{:<32}{:>12}{:>12}{:>15g}{:>14g}\n", group.rule < 0 ? "default" : group.match,
                    group.parameters, group.elements, group.learning_rate, group.weight_decay);
  return text;
}

}  // namespace trireme::optim
