// SPDX-License-Identifier: Apache-2.0
// The declarations of all verbs (verb.hpp), for the table in verbs.cpp. The work of a verb is in
// lower rooms or in the parent folder, where it can be tested without a command line.
#pragma once

#include "cli/verb.hpp"

namespace trireme::cli {

// deck.cpp: verbs that take a deck, and training, which has no verb.
Action declare_check(CLI::App& command);
Action declare_plan(CLI::App& command);
Action declare_verify(CLI::App& command);
Action declare_help(CLI::App& command);
/// `trireme DECK [section.key=value ...]`: argv[1] is the deck, the others are overrides.
ExitCode train_deck(Arguments arguments);

// doctor.cpp, tune.cpp: examination of the machine, and searches by short runs.
Action declare_doctor(CLI::App& command);
Action declare_find_rate(CLI::App& command);
Action declare_tune(CLI::App& command);

// train_tokenizer.cpp, tokenize.cpp: alone or under mpirun, with the same resulting files.
Action declare_tokenizer_train(CLI::App& command);
Action declare_tokenize(CLI::App& command);

// weights.cpp: under mpirun, each rank of import reads and writes its part.
Action declare_export(CLI::App& command);
Action declare_import(CLI::App& command);

// sample.cpp, evaluate.cpp: use of a trained model.
Action declare_sample(CLI::App& command);
Action declare_evaluate(CLI::App& command);

// runs.cpp: information about run directories, rewriting run.h5, and requests to an active run.
Action declare_checkpoints(CLI::App& command);
Action declare_record(CLI::App& command);
Action declare_speed(CLI::App& command);
Action declare_stop(CLI::App& command);
Action declare_save(CLI::App& command);

// data.cpp: the documents of a step, and the steps of a document.
Action declare_data(CLI::App& command);

// bench.cpp: benchmarks of single parts. All start MPI and are collective.
Action declare_bench_reduce(CLI::App& command);
Action declare_bench_matmul(CLI::App& command);
Action declare_bench_ops(CLI::App& command);

}  // namespace trireme::cli
