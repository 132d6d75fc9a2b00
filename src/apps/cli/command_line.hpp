// SPDX-License-Identifier: Apache-2.0
// The command line as a whole: a deck to train, or a verb with its options.
#pragma once

#include "base/error.hpp"

namespace trireme::cli {

/// Reads the whole line, then does what it asks for. A mistake in it ends with the usage on
/// standard error and ExitCode::user_error; failures inside of verbs are exceptions
/// (base/error.hpp).
ExitCode run(int argc, char** argv);

}  // namespace trireme::cli
