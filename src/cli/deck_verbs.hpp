// SPDX-License-Identifier: Apache-2.0
// The verbs that take a deck: check, plan, verify, help; and the training of one, which has no
// verb. What they do is in check_command.hpp, plan_command.hpp and under_mpi.hpp.
#pragma once

#include "cli/verb.hpp"

namespace trireme::cli {

Action declare_check(CLI::App& command);
Action declare_plan(CLI::App& command);
Action declare_verify(CLI::App& command);
Action declare_help(CLI::App& command);

/// `trireme DECK [section.key=value ...]`: argv[1] is the deck, all that follow are overrides.
ExitCode train_deck(Arguments arguments);

}  // namespace trireme::cli
