// SPDX-License-Identifier: Apache-2.0
// `trireme bench reduce DECK --fit FILE`: measures this machine for the deck (bench/fit.hpp) and
// keeps what it finds in a machine file (plan/machine_file.hpp).
//
// A file that exists is added to: what was measured of other numbers of ranks, hosts or models
// stays. It changes as a whole or not at all.
#pragma once

#include <string>

#include "bench/fit.hpp"
#include "cli/options.hpp"
#include "cli/verb.hpp"

namespace trireme::cli {

/// Under MPI. Storage is measured where FILE lies. Throws UserError, before anything is measured,
/// when FILE is there and no machine file.
ExitCode fit_command(Arguments arguments,
                     const DeckArguments& deck,
                     const std::string& path,
                     const bench::FitRequest& request);

}  // namespace trireme::cli
