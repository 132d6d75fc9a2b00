// SPDX-License-Identifier: Apache-2.0
// Declares a verb of the command line: its name, usage, options and action.
//
// `declare` adds the verb's options to its CLI11 command and returns the action, which owns the
// values of the options (through a shared pointer, because CLI11 writes to them after `declare` has
// returned). An action only runs after the whole command line was parsed without error. A new verb
// needs one such function and one row of the table in verbs.cpp.
#pragma once

#include <cstdint>
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

/// Whether a launcher may start a verb on several ranks.
enum class Runs : std::uint8_t { alone, on_ranks };

struct Verb {
  const char* name;   ///< "plan"; two words for a verb of a group: "bench ops"
  const char* usage;  ///< text after the name; may have several lines
  const char* help;   ///< one line
  Declaration* declare;
  Runs runs;
  const char* alias = nullptr;  ///< another name for it
};

// Grouped by their files in verbs/. Most only call code that can be tested without a command line.
Declaration declare_check, declare_plan, declare_verify, declare_help;  // deck.cpp
Declaration declare_doctor;                                             // doctor.cpp
Declaration declare_find_rate, declare_tune;                            // tune.cpp
Declaration declare_tokenizer_train, declare_tokenize;  // train_tokenizer.cpp, tokenize.cpp
Declaration declare_export, declare_import;             // weights.cpp
Declaration declare_sample, declare_evaluate;           // sample.cpp, evaluate.cpp
Declaration declare_checkpoints, declare_record, declare_speed, declare_stop,
    declare_save;                                                           // runs.cpp
Declaration declare_data;                                                   // data.cpp
Declaration declare_bench_reduce, declare_bench_matmul, declare_bench_ops;  // bench.cpp

/// `trireme DECK [section.key=value ...]`: argv[1] is the deck, the others are overrides. In deck.cpp.
ExitCode train_deck(Arguments arguments);

/// All verbs in the order of the usage text. Training has no verb: `trireme DECK` trains.
std::span<const Verb> verbs();

/// Parses all arguments, a deck to train or a verb with options, and runs it. A mistake in the
/// arguments prints the usage to standard error and returns ExitCode::user_error. Errors of verbs
/// are exceptions (base/error.hpp).
ExitCode run(int argc, char** argv);

/// Prints to standard output. Throws StorageError if it cannot be written.
void print(const std::string& text);

}  // namespace trireme::cli
