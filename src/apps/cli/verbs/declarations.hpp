// SPDX-License-Identifier: Apache-2.0
// The declarations of all verbs (verb.hpp), for the table in verbs.cpp. The work of a verb is in
// lower rooms or in the parent folder, where it can be tested without a command line.
#pragma once

#include "cli/verb.hpp"

namespace trireme::cli {

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

}  // namespace trireme::cli
