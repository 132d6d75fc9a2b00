// SPDX-License-Identifier: Apache-2.0
// Parameter groups: which hyperparameters apply to which parameter. The deck's rules
// (optimizer.groups) are resolved once against the model's parameter table; every part of the
// program uses the result, and `trireme plan` prints it.
//
// 1. A parameter belongs to the first rule whose pattern matches its name, or to none.
// 2. Without a rule a parameter has the optimizer's learning rate, and its weight decay for
//    matrices or 0 for biases and gains (layout::Parameter::decay).
// 3. A group is a set of parameters with the same rule and the same numbers; groups are in the
//    order in which the parameter table first needs them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/index.hpp"
#include "layout/plan.hpp"

#include "optim/config.hpp"

namespace trireme::optim {

struct Group {
  int rule = -1;      ///< index into optimizer.groups; -1: no rule
  std::string match;  ///< of the rule
  double learning_rate = 0;
  double weight_decay = 0;
  std::int64_t parameters = 0, elements = 0;
};

struct Groups {
  std::vector<Group> all;
  std::vector<std::size_t> of_parameter;  ///< index into `all`, by ParameterIndex

  [[nodiscard]] std::size_t of(ParameterIndex parameter) const {
    return of_parameter[at(parameter)];
  }
};

/// Whether `name` matches `pattern`: `*` is any text, including dots, `?` any character.
bool matches(const std::string& pattern, const std::string& name);

Groups resolve_groups(const OptimizerConfig& config, std::span<const layout::Parameter> parameters);

/// A table with one line per group.
std::string groups_text(const Groups& groups);

}  // namespace trireme::optim
