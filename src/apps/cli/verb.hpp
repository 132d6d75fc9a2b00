// SPDX-License-Identifier: Apache-2.0
// Declares a verb of the command line: its name, usage, options and action.
//
// `declare` adds the verb's options to its CLI11 command and returns the action, which owns the
// values of the options (through a shared pointer, because CLI11 writes to them after `declare` has
// returned). An action only runs after the whole command line was parsed without error. A new verb
// needs one such function and one row of the table in verbs.cpp.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace CLI {
class App;
}

namespace trireme::cli {

/// The arguments of main(), for MPI_Init, the name of the verb, and its options with their words.
struct Arguments {
  int& argc;
  char**& argv;
  const char* verb;
  std::vector<std::pair<std::string, std::string>> options{};
};

using Action = std::function<ExitCode(Arguments)>;
using Declaration = Action(CLI::App& command);

struct Verb {
  const char* name;   ///< "plan"; two words for a verb of a group: "bench ops"
  const char* usage;  ///< text after the name; may have several lines
  const char* help;   ///< one line
  Declaration* declare;
  const char* alias = nullptr;  ///< another name for it
};

/// All verbs in the order of the usage text. Training has no verb: `trireme DECK` trains.
std::span<const Verb> verbs();

/// Parses all arguments, a deck to train or a verb with options, and runs it. A mistake in the
/// arguments prints the usage to standard error and returns ExitCode::user_error. Errors of verbs
/// are exceptions (base/error.hpp).
ExitCode run(int argc, char** argv);

/// Prints to standard output. Throws StorageError if it cannot be written.
void print(const std::string& text);

}  // namespace trireme::cli
