// SPDX-License-Identifier: Apache-2.0
// What needs MPI: the verbs that train a deck, or verify its switches, on all ranks of the job.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"

#include "comm/world.hpp"

#include "train/job.hpp"

namespace trireme {

/// `action` between MPI's beginning and end. Prints mistakes on rank 0 and failures on the rank
/// that met them; a failure that the other ranks do not know of ends the whole job.
ExitCode under_mpi(int& argc, char**& argv, const std::function<ExitCode(comm::World&)>& action);

/// `action`, called `verb`, with the checked deck: rank 0 reads the deck's bytes, every rank parses
/// the same bytes with the overrides of its own command line. Throws UserError or CommError where
/// ranks were started with other verbs, decks, overrides or builds.
ExitCode with_deck(comm::World& world,
                   const char* verb,
                   const std::string& deck_path,
                   const std::vector<std::string>& overrides,
                   const std::function<ExitCode(const train::Job&, Log&)>& action);

ExitCode train_command(int& argc,
                       char**& argv,
                       const std::string& deck_path,
                       const std::vector<std::string>& overrides);

/// `trireme verify`: exit 4 and the first difference when a switch shows in the numbers.
ExitCode verify_command(int& argc,
                        char**& argv,
                        const std::string& deck_path,
                        const std::vector<std::string>& overrides,
                        std::int64_t steps);

}  // namespace trireme
