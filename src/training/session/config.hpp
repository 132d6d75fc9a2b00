// SPDX-License-Identifier: Apache-2.0
// The deck sections `run`, `batch`, `evaluate` and `sample`.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/key.hpp"

#include "batches/batches.hpp"

#include "weights/config.hpp"

#include "session/evaluate_config.hpp"
#include "session/gpu_config.hpp"

namespace trireme::session {

enum class DeviceChoice : std::uint8_t { automatic, cpu, cuda };
enum class Precision : std::uint8_t { automatic, fp32, bf16 };

/// What to do with a run directory whose run has completed all its steps.
enum class WhenFinished : std::uint8_t { keep, renew };

struct RunConfig {
  std::string name = "run";
  std::string directory;
  std::int64_t steps = 0;
  std::int64_t seed = 1337;
  std::string initial_weights;
  weights::InitialRows initial_rows = weights::InitialRows::exact;
  DeviceChoice device = DeviceChoice::automatic;
  Precision precision = Precision::automatic;
  Or<std::int64_t> threads;
  WhenFinished when_finished = WhenFinished::keep;
  bool restart_without_checkpoints = false;
  Or<Duration> walltime{.value = std::nullopt, .keyword = "none"};
  std::vector<std::string> allow_changes;
};

struct BatchChange {
  std::int64_t step = 0;
  std::int64_t sequences = 0;
};

struct BatchConfig {
  std::int64_t sequences = 0;
  std::int64_t micro_sequences = 0;
  bool equal_ranks = false;
  std::vector<BatchChange> schedule = {};

  /// The batch sizes of all steps. Requires: the deck was checked.
  [[nodiscard]] batches::BatchSizes sizes() const {
    std::vector<batches::BatchSizes::Part> later;
    later.reserve(schedule.size());
    for (const BatchChange& change : schedule) later.push_back({change.step, change.sequences});
    return batches::BatchSizes(sequences, later);
  }
};

struct SampleConfig {
  std::int64_t every_steps = 0;
  std::int64_t tokens = 64;
  std::string prompt;
  double temperature = 0.8;
};

template <class V>
void describe(V& v, RunConfig& c) {
  v("name", c.name, {.help = "Name of the run in the record and in plots."});
  v("directory", c.directory,
    {.help = "Directory of all files of the run. If it has a checkpoint, the run resumes.",
     .required = true});
  v("steps", c.steps,
    {.unit = "steps",
     .help = "Total number of optimizer steps.",
     .min = 1,
     .max = 1'000'000'000,
     .required = true});
  v("seed", c.seed,
    {.help = "Random seed for initialization, sample order and dropout.",
     .min = 0,
     .change = Change::never});
  v("initial_weights", c.initial_weights,
    {.help =
         "Weights at the start of a new run: a folder of Hugging Face transformers, a model file "
         "of llm.c, a run directory (its newest checkpoint) or a checkpoint. The optimizer and its "
         "schedule start from zero. Empty: random weights, which verify and bench always use. A "
         "run that resumes does not read it."});
  v("initial_rows", c.initial_rows,
    {.help =
         "What to do if run.initial_weights has another vocabulary or context than the model. "
         "exact: end with an error. pad: add rows to the embeddings (the mean of the existing rows "
         "for the vocabulary, random rows for positions). cut: remove the last rows. fit: pad or "
         "cut."});
  v("device", c.device,
    {.help = "Device that computes. auto: a GPU if every rank has one, else the CPU."});
  v("precision", c.precision,
    {.help =
         "Type of weights and activations. bf16: the optimizer keeps fp32 master weights; unlike "
         "PyTorch's autocast, the model's weights are bf16. auto: bf16 if every rank multiplies "
         "it faster than fp32 (tensor cores, AMX, AVX-512 BF16 of AMD), else fp32."});
  v("threads", c.threads,
    {.unit = "threads",
     .help = "CPU threads per rank. auto: the rank's share of the cores of its host.",
     .min = 1,
     .max = 1024});
  v("when_finished", c.when_finished,
    {.help = "What to do if the run in run.directory has completed all steps. keep: nothing. new: "
             "start a new run in DIRECTORY-2, DIRECTORY-3, ..."});
  v("restart_without_checkpoints", c.restart_without_checkpoints,
    {.help =
         "Start from step 0 if the run directory shows that the run had checkpoints, but there is "
         "none. false: end with exit code 3."});
  v("walltime", c.walltime,
    {.unit = "seconds",
     .help =
         "Time limit: shortly before it the run writes a checkpoint and ends with exit code 75. "
         "Run the same command again to resume. The end of a Slurm job is always a limit; none: "
         "no other.",
     .min = 0.0,
     .above_min = true});
  v("allow_changes", c.allow_changes,
    {.help = "Keys or sections (data, batch, optimizer.schedule, …) that may differ from the "
             "checkpoint from "
             "which the run resumes, although the change makes it another experiment."});
}

template <class V>
void describe(V& v, BatchChange& c) {
  v("step", c.step,
    {.unit = "steps",
     .help = "First step with this batch.",
     .min = 2,
     .max = 1'000'000'000,
     .required = true});
  v("sequences", c.sequences,
    {.unit = "sequences",
     .help = "Global batch from this step on.",
     .min = 1,
     .max = 1 << 24,
     .required = true});
}

template <class V>
void describe(V& v, BatchConfig& c) {
  v("sequences", c.sequences,
    {.unit = "sequences",
     .help = "Global batch: sequences per step over all ranks, whose number need not divide it. "
             "batch.schedule changes it during a run.",
     .min = 1,
     .max = 1 << 24,
     .required = true,
     .change = Change::asked});
  v("micro_sequences", c.micro_sequences,
    {.unit = "sequences",
     .help = "Micro-batch: sequences that a rank computes at a time. It determines the number of "
             "micro-steps.",
     .min = 1,
     .max = 1 << 24,
     .required = true});
  v("equal_ranks", c.equal_ranks,
    {.help = "Refuse a batch that does not give every rank the same number of full micro-batches. "
             "Set it when idle ranks would be a mistake, or to compare speeds."});
  v.list("schedule", c.schedule,
         {.help =
              "Changes of the global batch at later steps, in ascending order. They change the "
              "number of micro-steps, not the order of samples. evaluate.batches counts batches of "
              "batch.sequences.",
          .change = Change::asked});
}

template <class V>
void describe(V& v, SampleConfig& c) {
  v("every_steps", c.every_steps,
    {.unit = "steps", .help = "Print a sample every N steps and at the end. 0: never.", .min = 0});
  v("tokens", c.tokens, {.unit = "tokens", .help = "Number of tokens of the sample.", .min = 1});
  v("prompt", c.prompt, {.help = "Text that the sample continues."});
  v("temperature", c.temperature,
    {.help = "Sampling temperature. 0: always the most likely token. 1: the model's distribution.",
     .min = 0.0,
     .max = 100.0});
}

}  // namespace trireme::session

template <>
struct trireme::EnumNames<trireme::session::WhenFinished> {
  using enum session::WhenFinished;
  static constexpr std::pair<session::WhenFinished, const char*> table[] = {{keep, "keep"},
                                                                            {renew, "new"}};
};
