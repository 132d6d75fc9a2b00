// SPDX-License-Identifier: Apache-2.0
// A verb of the command line: its name, usage, options and action, declared in one place.
//
// `declare` adds the verb's options to its CLI11 command and returns the action, which owns what
// the options were read into. No action runs before the whole command line was read without a
// mistake. A new verb is one such function and one row of the table in verbs.cpp.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "base/error.hpp"

namespace CLI {
class App;
}

namespace trireme::cli {

/// What main() was called with, which MPI takes, and the verb that it means.
struct Arguments {
  int& argc;
  char**& argv;
  const char* verb;
};

using Action = std::function<ExitCode(Arguments)>;

struct Verb {
  const char* name;   ///< "plan"; two words for a verb of a group: "bench pool"
  const char* usage;  ///< what follows the name; a line break starts a line of its own
  const char* help;   ///< one line
  Action (*declare)(CLI::App& command);
  const char* alias = nullptr;  ///< another name for it
};

/// All verbs in the order of the usage text. Training has none: a deck alone is trained.
std::span<const Verb> verbs();

/// To standard output. Throws StorageError when it cannot be written.
void print(const std::string& text);

}  // namespace trireme::cli
