// SPDX-License-Identifier: Apache-2.0
// Parses the command line, a deck to train or a verb with options, and runs it.
#pragma once

#include "base/error.hpp"

namespace trireme::cli {

/// Parses all arguments, then runs the verb. A mistake in the arguments prints the usage to
/// standard error and returns ExitCode::user_error. Errors of verbs are exceptions
/// (base/error.hpp).
ExitCode run(int argc, char** argv);

}  // namespace trireme::cli
