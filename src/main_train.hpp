// SPDX-License-Identifier: Apache-2.0
// The verbs that need MPI and a deck: train it, or verify its switches, on all ranks of the job.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace trireme {

/// Rank 0 reads the deck's bytes, every rank parses the same bytes. Prints mistakes on rank 0 and
/// failures on the rank that met them; a failure that the other ranks do not know of ends the whole
/// job.
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
