// SPDX-License-Identifier: Apache-2.0
// Applies `section.key=value` overrides of the command line to the deck's tree before it is read.
#pragma once

#include <string>
#include <vector>

#include "base/error.hpp"

#include "deck/yaml.hpp"

namespace trireme::deck {

/// Applies `text`, the `number`-th override from 1, to `root`. Requires: root is a map. An invalid
/// override is a finding at "command line:number:column" and changes nothing.
void apply_override(Node& root,
                    const std::string& text,
                    int number,
                    std::vector<Diagnostic>& findings);

}  // namespace trireme::deck
