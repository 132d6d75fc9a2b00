// SPDX-License-Identifier: Apache-2.0
#include "cli/verb.hpp"
#include "cli/verbs/declarations.hpp"

namespace trireme::cli {

std::span<const Verb> verbs() {
  static constexpr Verb table[] = {
      {"check", "DECK [section.key=value ...] [--ranks N]",
       "Find every mistake in a deck; needs no MPI", declare_check},
      {"plan",
       "DECK [section.key=value ...] [--ranks N,...] [--hosts H] [--json FILE] [--schedule]\n"
       "[--machine FILE]",
       "Buckets, padding, the bytes that each rank holds, and what a step will take", declare_plan},
      {"verify", "DECK [section.key=value ...] [--steps K]    under mpirun",
       "Train under every switch and compare the bits", declare_verify},
      {"doctor", "[--directory DIR] [--threads N] [--json FILE]    alone or under mpirun",
       "Hardware, limits and speed of this machine, and problems for a run", declare_doctor},
      {"find-rate",
       "DECK [section.key=value ...] [--from R] [--to R] [--steps K]\n"
       "[--stop-above M] [--json FILE]    alone or under mpirun",
       "Losses over a growing learning rate, and which it suggests", declare_find_rate},
      {"tune",
       "DECK [section.key=value ...] [--output DECK] [--seconds S] [--memory GIB] [--same-bits]\n"
       "[--json FILE]    alone or under mpirun",
       "Micro-batch, transport and buckets with which a deck's step is shortest here",
       declare_tune},
      {"tokenize",
       "--tokenizer FILE_OR_DIR --text FILES ... --output PREFIX [--field KEY]\n"
       "[--validation-fraction F] [--shard-bytes B]    alone or under mpirun",
       "Shards of tokens from text, with a manifest", declare_tokenize},
      {"export",
       "RUN_DIR --format huggingface|llm.c --output DIR [--dtype fp32|bf16] [--step N]\n"
       "[--rows model|tokenizer] [--shard-bytes B]",
       "Weights as other programs read them", declare_export},
      {"import",
       "DIR_OR_FILE --output RUN_DIR [--tokenizer FILE_OR_DIR|bytes|none] [--seed S]    alone or "
       "under mpirun",
       "A run directory out of weights, without training", declare_import},
      {"sample",
       "MODEL [--prompt TEXT | --prompts FILE] [--samples N] [--tokens K] [--temperature T]\n"
       "[--top-k K] [--top-p P] [--seed S] [--json FILE]    alone or under mpirun",
       "Text from a trained model; `generate` is another name for it", declare_sample, "generate"},
      {"evaluate",
       "MODEL [--step N] [--text FILES ... | --tokens FILES ...] [--json FILE]\n"
       "[--multiple-choice FILE --format hellaswag|jsonl]    alone or under mpirun",
       "A trained model's loss, and its answers to multiple choice", declare_evaluate},
      {"checkpoints", "RUN_DIR [--verify] [--json]",
       "The checkpoints of a run; with --verify, every byte against its hash", declare_checkpoints},
      {"record", "RUN_DIR", "Write run.h5 again from steps.jsonl, after a run was killed",
       declare_record},
      {"stop", "RUN_DIR [--now]", "Ask a running run, on any host, to save a checkpoint and stop",
       declare_stop},
      {"save", "RUN_DIR", "Ask a running run, on any host, to save a checkpoint and continue",
       declare_save},
      {"speed", "RUN_DIR ... [--goal NAME=TOKENS_PER_S ...] [--warmup K] [--h5 FILE]",
       "How fast finished runs were, from their records", declare_speed},
      {"tokenizer train",
       "--text FILES ... [--field KEY] --vocabulary N [--pattern P] --output DIR\n"
       "[--memory GIB] [--threads K]    alone or under mpirun",
       "A byte-pair vocabulary from text", declare_tokenizer_train},
      {"bench reduce",
       "[--bytes N,...] [--transport T,...] [--dtype fp32,bf16]\n"
       "[--reduction R] [--no-baselines] [DECK [section.key=value ...] --fit FILE]    under mpirun",
       "Collectives beside MPI's own; what a deck's step costs on this machine",
       declare_bench_reduce},
      {"bench engine", "DECK [section.key=value ...]    alone or under mpirun",
       "A step beside the same step without the engine", declare_bench_engine},
      {"bench shards", "DECK [section.key=value ...] [--ranks N]",
       "Finding every shard's address, with and without the cache", declare_bench_shards},
      {"bench pool", "[--bytes N,...] [--device cpu|cuda]",
       "A lease of scratch memory beside allocating it", declare_bench_pool},
      {"bench matmul", "[DECK] [section.key=value ...]    alone or under mpirun",
       "The matrix products of a deck", declare_bench_matmul},
      {"bench generate", "[DECK] [section.key=value ...]    alone or under mpirun",
       "A token of generated text, with kept keys and values and without", declare_bench_generate},
      {"bench ops",
       "[DECK] [section.key=value ...]    alone or under mpirun\n"
       "all benches: [--repetitions K] [--json FILE]",
       "Every operation of a deck's step", declare_bench_ops},
      {"help", "deck [SECTION | KEY]", "Explain the keys of a deck", declare_help},
  };
  return table;
}

}  // namespace trireme::cli
