// SPDX-License-Identifier: Apache-2.0
// `section.key=value` words of the command line, laid over the deck's tree before it is read.
#pragma once

#include <string>
#include <vector>

#include "base/error.hpp"

#include "deck/yaml.hpp"

namespace trireme::deck {

/// Puts `text`, the `number`-th override from 1, into `root`. Requires: root is a map. An override
/// that cannot be one is a finding at "command line:number:column" and changes nothing.
void apply_override(Node& root,
                    const std::string& text,
                    int number,
                    std::vector<Diagnostic>& findings);

}  // namespace trireme::deck
