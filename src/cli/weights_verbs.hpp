// SPDX-License-Identifier: Apache-2.0
// The verbs that take weights out of a run and into one: export and import. import may be started
// under mpirun, and then each rank reads and writes its part.
#pragma once

#include "cli/verb.hpp"

namespace trireme::cli {

Action declare_export(CLI::App& command);
Action declare_import(CLI::App& command);

}  // namespace trireme::cli
