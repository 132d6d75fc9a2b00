// SPDX-License-Identifier: Apache-2.0
// The declaration of every verb: what the rows of the table in verbs.cpp name. A declaration adds
// the verb's options to its command and returns its action (verb.hpp). The work is in the rooms
// below, and for some verbs one folder up, where it is tested without a command line:
// check_command.hpp, plan_command.hpp, fit_command.hpp, under_mpi.hpp.
#pragma once

#include "cli/verb.hpp"

namespace trireme::cli {

// deck.cpp: the verbs that take a deck, and the training of one, which has no verb.
Action declare_check(CLI::App& command);
Action declare_plan(CLI::App& command);
Action declare_verify(CLI::App& command);
Action declare_help(CLI::App& command);
/// `trireme DECK [section.key=value ...]`: argv[1] is the deck, all that follow are overrides.
ExitCode train_deck(Arguments arguments);

// doctor.cpp, find_rate.cpp, tune.cpp: what the machine is, and searches by short runs.
Action declare_doctor(CLI::App& command);
Action declare_find_rate(CLI::App& command);
Action declare_tune(CLI::App& command);

// train_tokenizer.cpp, tokenize.cpp: a vocabulary from text, and shards of text. Alone or under
// mpirun, with the same files as result.
Action declare_tokenizer_train(CLI::App& command);
Action declare_tokenize(CLI::App& command);

// weights.cpp: weights out of a run and into one. Under mpirun, each rank of import reads and
// writes its part.
Action declare_export(CLI::App& command);
Action declare_import(CLI::App& command);

// sample.cpp, evaluate.cpp: text from a trained model, its loss, its answers to multiple choice.
Action declare_sample(CLI::App& command);
Action declare_evaluate(CLI::App& command);

// checkpoints.cpp, record.cpp, speed.cpp: the directories of runs: whether their checkpoints are as
// written, run.h5 made again, how fast they were.
Action declare_checkpoints(CLI::App& command);
Action declare_record(CLI::App& command);
Action declare_speed(CLI::App& command);

// stop.cpp: requests to a run that is going on.
Action declare_stop(CLI::App& command);
Action declare_save(CLI::App& command);

// bench.cpp: one part alone, as a table on standard output and, where asked for, as JSON in a new
// file. `reduce`, `engine`, `matmul`, `generate` and `ops` start MPI; they are collective.
Action declare_bench_reduce(CLI::App& command);
Action declare_bench_engine(CLI::App& command);
Action declare_bench_shards(CLI::App& command);
Action declare_bench_pool(CLI::App& command);
Action declare_bench_matmul(CLI::App& command);
Action declare_bench_generate(CLI::App& command);
Action declare_bench_ops(CLI::App& command);

}  // namespace trireme::cli
