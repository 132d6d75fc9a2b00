// SPDX-License-Identifier: Apache-2.0
// All values of a config, so that two configs can be compared.
#pragma once

#include <map>
#include <string>

#include "deck/survey.hpp"

namespace trireme::deck {

/// As YAML, by path.
inline std::map<std::string, std::string> values_of(const JobConfig& config) {
  std::map<std::string, std::string> values;
  for (const Entry& entry : survey(config)) values.emplace(entry.path, entry.text);
  return values;
}

}  // namespace trireme::deck
