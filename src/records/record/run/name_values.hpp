// SPDX-License-Identifier: Apache-2.0
// Facts by name, in a fixed order: deck keys, versions, model sizes. The rooms above turn their
// structs into these, so `record` depends neither on the deck nor on the model.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace trireme::record {

using NameValues = std::vector<std::pair<std::string, std::string>>;

}  // namespace trireme::record
