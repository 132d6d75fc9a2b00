// SPDX-License-Identifier: Apache-2.0
// `trireme bench reduce DECK --fit FILE`: measures this machine for the deck (bench/fit.hpp) and
// writes the results to a machine file (plan/machine_file.hpp).
//
// Results are added to an existing file; those for other numbers of ranks, hosts or models are
// kept. The file is replaced atomically.
#pragma once

#include <string>

#include "bench/fit.hpp"
#include "cli/options.hpp"
#include "cli/verb.hpp"

namespace trireme::cli {

/// Runs under MPI. Storage is measured in the directory of FILE. Throws UserError before measuring
/// if FILE exists but is not a machine file.
ExitCode fit_command(Arguments arguments,
                     const DeckArguments& deck,
                     const std::string& path,
                     const bench::FitRequest& request);

}  // namespace trireme::cli
