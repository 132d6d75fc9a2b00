// SPDX-License-Identifier: Apache-2.0
// The verb that needs MPI: train a deck on all ranks of the job.
#pragma once

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

}  // namespace trireme
