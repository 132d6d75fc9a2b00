// SPDX-License-Identifier: Apache-2.0
#include "cli/verb.hpp"

namespace trireme::cli {

std::span<const Verb> verbs() {
  static constexpr Verb table[] = {
      {"check", "DECK [section.key=value ...] [--ranks N]",
       "Find all mistakes in a deck. Needs no MPI.", declare_check, Runs::alone},
      {"plan",
       "DECK [section.key=value ...] [--ranks N,...] [--hosts H] [--json FILE] [--schedule]\n"
       "[--machine FILE]",
       "Show buckets, padding, memory per rank and the predicted time of a step.", declare_plan,
       Runs::alone},
      {"verify", "DECK [section.key=value ...] [--steps K]    under mpirun",
       "Train with every combination of switches and compare the results bitwise.", declare_verify,
       Runs::on_ranks},
      {"doctor", "[--directory DIR] [--threads N] [--json FILE]    alone or under mpirun",
       "Examine hardware, limits and speed of this machine, and report problems for a run.",
       declare_doctor, Runs::on_ranks},
      {"find-rate",
       "DECK [section.key=value ...] [--from R] [--to R] [--steps K]\n"
       "[--stop-above M] [--json FILE]    alone or under mpirun",
       "Train with an increasing learning rate and suggest a value.", declare_find_rate,
       Runs::on_ranks},
      {"tune",
       "DECK [section.key=value ...] [--output DECK] [--seconds S] [--memory GIB] [--same-bits]\n"
       "[--json FILE]    alone or under mpirun",
       "Find the fastest micro-batch, transport and bucket sizes for a deck on this machine.",
       declare_tune, Runs::on_ranks},
      {"tokenize",
       "--tokenizer FILE_OR_DIR --text FILES ... --output PREFIX [--field KEY]\n"
       "[--validation-fraction F] [--shard-bytes B]    alone or under mpirun",
       "Convert text to token files with a manifest.", declare_tokenize, Runs::on_ranks},
      {"data",
       "DECK [section.key=value ...] --step K[-L],... | --document FILE:OFFSET [--ranks N]\n"
       "[--json FILE]",
       "List the documents that a step uses, or the steps that use a document.", declare_data,
       Runs::alone},
      {"export",
       "RUN_DIR --format huggingface|gguf|llm.c --output DIR [--dtype fp32|bf16|fp16|q8_0]\n"
       "[--step N] [--rows model|tokenizer] [--shard-bytes B]",
       "Export weights for other programs.", declare_export, Runs::alone},
      {"import",
       "DIR_OR_FILE --output RUN_DIR [--tokenizer FILE_OR_DIR|bytes|none] [--seed S]    alone or "
       "under mpirun",
       "Create a run directory from weights, without training.", declare_import, Runs::on_ranks},
      {"sample",
       "MODEL [--prompt TEXT | --prompts FILE] [--samples N] [--tokens K] [--temperature T]\n"
       "[--top-k K] [--top-p P] [--seed S] [--json FILE]    alone or under mpirun",
       "Generate text with a trained model. Also called `generate`.", declare_sample,
       Runs::on_ranks, "generate"},
      {"evaluate",
       "MODEL [--step N] [--text FILES ... | --tokens FILES ...] [--json FILE]\n"
       "[--multiple-choice FILE --format hellaswag|jsonl]    alone or under mpirun",
       "Compute a trained model's loss and multiple-choice accuracy.", declare_evaluate,
       Runs::on_ranks},
      {"checkpoints", "RUN_DIR [--verify] [--json FILE]",
       "List the checkpoints of a run. With --verify, check every byte.", declare_checkpoints,
       Runs::alone},
      {"record", "RUN_DIR", "Rewrite run.h5 from steps.jsonl after a run was killed.",
       declare_record, Runs::alone},
      {"stop", "RUN_DIR [--now]",
       "Ask a run, on any host, to save a checkpoint and stop with exit code 76.", declare_stop,
       Runs::alone},
      {"save", "RUN_DIR", "Ask a run, on any host, to save a checkpoint and continue.",
       declare_save, Runs::alone},
      {"speed", "RUN_DIR ... [--goal NAME=TOKENS_PER_S ...] [--warmup K] [--h5 FILE]",
       "Compare the speed of finished runs from their records.", declare_speed, Runs::alone},
      {"tokenizer train",
       "--text FILES ... [--field KEY] --vocabulary N [--pattern P] --output DIR\n"
       "[--memory GIB] [--threads K]    alone or under mpirun",
       "Train a byte-pair tokenizer on text.", declare_tokenizer_train, Runs::on_ranks},
      {"bench reduce",
       "[--bytes N,...] [--transport T,...] [--dtype fp32,bf16]\n"
       "[--reduction R] [--no-baselines] [DECK [section.key=value ...] --fit FILE]    under mpirun",
       "Compare collectives with MPI's own; with --fit, measure this machine for a deck.",
       declare_bench_reduce, Runs::on_ranks},
      {"bench matmul", "[DECK] [section.key=value ...]    alone or under mpirun",
       "Time the matrix products of a deck.", declare_bench_matmul, Runs::on_ranks},
      {"bench ops",
       "[DECK] [section.key=value ...]    alone or under mpirun\n"
       "all benches: [--repetitions K] [--json FILE]",
       "Time every operation of a deck's step.", declare_bench_ops, Runs::on_ranks},
      {"help", "deck [SECTION | KEY]", "Explain the keys of a deck.", declare_help, Runs::alone},
  };
  return table;
}

}  // namespace trireme::cli
