// SPDX-License-Identifier: Apache-2.0
// A machine file (plan/machine.hpp) as text: YAML, read as a deck is, so that every mistake has
// its line and column.
#pragma once

#include <string>

#include "plan/machine.hpp"

namespace trireme::plan {

/// Throws UserError with all findings; of a version that this program does not read, with that
/// alone. `path` only names the file in messages.
Machine parse_machine(const std::string& bytes, const std::string& path);

/// The same from a file. Throws UserError also when it cannot be read.
Machine read_machine(const std::string& path);

/// parse_machine() of it gives the same numbers.
std::string machine_text(const Machine& machine);

}  // namespace trireme::plan
