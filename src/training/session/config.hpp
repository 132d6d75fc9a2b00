// SPDX-License-Identifier: Apache-2.0
// The deck sections `run`, `gpu`, `batch`, `evaluate` and `sample`.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/key.hpp"

#include "ops/options.hpp"

#include "batches/batches.hpp"

#include "weights/config.hpp"

#include "session/evaluate_config.hpp"

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

/// How a GPU computes. Only `graphs` applies to CPUs too, for tests.
struct GpuConfig {
  bool timed_products = ops::ProductOptions().timed;
  bool fused_gelu = ops::ProductOptions().fused_gelu;
  bool fused_gelu_backward = ops::ProductOptions().fused_gelu_backward;
  bool fused_bias_gradients = ops::ProductOptions().fused_row_sums;
  Or<std::int64_t> product_workspace;
  bool deterministic_attention = ops::AttentionOptions().deterministic;
  ops::AttentionKernels attention = ops::AttentionOptions().kernels;
  Or<bool> graphs;

  [[nodiscard]] ops::AttentionOptions attention_options() const {
    return {.deterministic = deterministic_attention, .kernels = attention};
  }

  /// The workspace on a GPU with `memory_bytes` of memory.
  [[nodiscard]] std::size_t product_workspace_bytes(std::size_t memory_bytes) const {
    if (product_workspace.given())
      return static_cast<std::size_t>(*product_workspace.value) << 20U;
    const std::size_t usual = ops::ProductOptions().workspace_bytes;
    return timed_products && memory_bytes >= std::size_t{64} << 30U ? 4 * usual : usual;
  }
};

/// One change of the batch's size.
struct BatchChange {
  std::int64_t step = 0;
  std::int64_t sequences = 0;
};

struct BatchConfig {
  std::int64_t sequences = 0;
  std::int64_t micro_sequences = 0;
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
  v("name", c.name, {.help = "Names the run in the record and in plots."});
  v("directory", c.directory,
    {.help = "Directory of all files of the run; with a checkpoint in it, the run resumes.",
     .required = true});
  v("steps", c.steps,
    {.unit = "steps",
     .help = "Optimizer steps in all.",
     .min = 1,
     .max = 1'000'000'000,
     .required = true});
  v("seed", c.seed,
    {.help = "Initialization, sample order and dropout are functions of it.",
     .min = 0,
     .change = Change::never});
  v("initial_weights", c.initial_weights,
    {.help =
         "Weights that a new run begins with instead of random ones: a folder of Hugging Face's "
         "transformers, a model file of llm.c, a run directory (its newest checkpoint) or a "
         "checkpoint. The optimizer and its schedule start from zero. A run that resumes does not "
         "read them; its record names what it began with; verify and bench begin with random "
         "ones. Empty: random ones."});
  v("initial_rows", c.initial_rows,
    {.help =
         "Where run.initial_weights has another vocabulary or context than the model: exact "
         "is an error; pad adds rows to the embeddings (vocabulary: each the mean of the existing "
         "rows; positions: random rows); cut drops the last rows; fit does "
         "either."});
  v("device", c.device, {.help = "Where to compute; auto: a GPU where one is present."});
  v("precision", c.precision,
    {.help = "fp32 or bf16; auto: bf16 where every rank multiplies it faster than fp32 (tensor "
             "cores, AMX, AVX-512 BF16 of AMD). bf16: weights, activations and the products' "
             "inputs are bf16, and the optimizer keeps fp32 masters and moments. That is not "
             "autocast, which keeps fp32 "
             "weights and rounds them for each product."});
  v("threads", c.threads,
    {.unit = "threads",
     .help = "CPU threads per rank; auto: this rank's share of its host's cores.",
     .min = 1,
     .max = 1024});
  v("when_finished", c.when_finished,
    {.help = "A run directory that holds all its steps is left as it is (keep), or a new run is "
             "made beside it in DIRECTORY-2, DIRECTORY-3, ... (new)."});
  v("restart_without_checkpoints", c.restart_without_checkpoints,
    {.help = "Start from step 0 when the run directory shows that the run had checkpoints and none "
             "is there; false: such a start ends with exit code 3."});
  v("walltime", c.walltime,
    {.unit = "seconds",
     .help = "Shortly before this the run writes a checkpoint and ends with exit code 75; start it "
             "again to resume. The end of a Slurm job counts as well; none: only that.",
     .min = 0.0,
     .above_min = true});
  v("allow_changes", c.allow_changes,
    {.help = "Keys or sections that may differ from those of the checkpoint that the run "
             "resumes, where a change makes it another experiment (data, batch, schedule)."});
}

template <class V>
void describe(V& v, GpuConfig& c) {
  v("timed_products", c.timed_products,
    {.help = "Time cuBLASLt's algorithms for each matrix product in the first step and keep the "
             "fastest; off: the first choice of its heuristics. The fastest may differ between "
             "runs and ranks, and with it the last bits."});
  v("fused_gelu", c.fused_gelu,
    {.help = "GELU within the matrix product before it, in bf16. It rounds once less; "
             "model.recompute: gelu leaves it out, so its bits differ."});
  v("fused_gelu_backward", c.fused_gelu_backward,
    {.help = "GELU's gradient within the matrix product that makes it, in bf16. It rounds once "
             "less."});
  v("fused_bias_gradients", c.fused_bias_gradients,
    {.help = "In bf16, gradients of the biases of qkv and fc within the products that make the "
             "weights' gradients. cuBLASLt documents no order of these sums."});
  v("product_workspace", c.product_workspace,
    {.unit = "MiB",
     .help = "Scratch that a matrix product may use, for sums that several blocks share (split-K). "
             "auto: 32; 128 with gpu.timed_products on a GPU with 64 GiB "
             "or more.",
     .min = 1,
     .max = 4096});
  v("deterministic_attention", c.deterministic_attention,
    {.help = "Attention's backward pass in bf16 adds up in one order, by way of a matrix of "
             "context x context per head in memory; off: in the order of arrival, with less "
             "memory and traffic, and no run repeats to the bit."});
  v("attention", c.attention,
    {.help = "Kernels for attention in bf16. auto: cuDNN's where they take the shape, and "
             "trireme's own where cuDNN refuses it, with a warning. cudnn: such a refusal is an "
             "error. own: trireme's kernels only. The kernels differ in the last bits."});
  v("graphs", c.graphs,
    {.help = "Capture a micro-step once and launch it as a graph from then on, which spares a "
             "GPU's host most of its calls. auto: on GPUs, with memory.pool. Never changes the "
             "numbers."});
}

template <class V>
void describe(V& v, BatchChange& c) {
  v("step", c.step,
    {.unit = "steps",
     .help = "The first step with this batch.",
     .min = 2,
     .max = 1'000'000'000,
     .required = true});
  v("sequences", c.sequences,
    {.unit = "sequences",
     .help = "Global batch from that step on.",
     .min = 1,
     .max = 1 << 24,
     .required = true});
}

template <class V>
void describe(V& v, BatchConfig& c) {
  v("sequences", c.sequences,
    {.unit = "sequences",
     .help = "Global batch of one step, over all ranks; batch.schedule changes it during a run.",
     .min = 1,
     .max = 1 << 24,
     .required = true,
     .change = Change::asked});
  v("micro_sequences", c.micro_sequences,
    {.unit = "sequences",
     .help = "Sequences that one rank computes at a time; the number of micro-steps follows.",
     .min = 1,
     .max = 1 << 24,
     .required = true});
  v.list(
      "schedule", c.schedule,
      {.help = "Other batches from later steps on, in the order of the steps: more micro-steps "
               "of the same size. Samples come in the same order with any batch. evaluate.batches "
               "counts batches of batch.sequences.",
       .change = Change::asked});
}

template <class V>
void describe(V& v, SampleConfig& c) {
  v("every_steps", c.every_steps,
    {.unit = "steps",
     .help = "Print a sample every so many steps and at the end. 0: never.",
     .min = 0});
  v("tokens", c.tokens, {.unit = "tokens", .help = "Length of the sample.", .min = 1});
  v("prompt", c.prompt, {.help = "Text that the sample continues."});
  v("temperature", c.temperature,
    {.help = "0: always the most likely token; 1: the model's own distribution.",
     .min = 0.0,
     .max = 100.0});
}

}  // namespace trireme::session

template <>
struct trireme::EnumNames<trireme::ops::AttentionKernels> {
  using enum ops::AttentionKernels;
  static constexpr std::pair<ops::AttentionKernels, const char*> table[] = {
      {automatic, "auto"}, {cudnn, "cudnn"}, {own, "own"}};
};
template <>
struct trireme::EnumNames<trireme::session::DeviceChoice> {
  using enum session::DeviceChoice;
  static constexpr std::pair<session::DeviceChoice, const char*> table[] = {
      {automatic, "auto"}, {cpu, "cpu"}, {cuda, "cuda"}};
};
template <>
struct trireme::EnumNames<trireme::session::WhenFinished> {
  using enum session::WhenFinished;
  static constexpr std::pair<session::WhenFinished, const char*> table[] = {{keep, "keep"},
                                                                            {renew, "new"}};
};
template <>
struct trireme::EnumNames<trireme::session::Precision> {
  using enum session::Precision;
  static constexpr std::pair<session::Precision, const char*> table[] = {
      {automatic, "auto"}, {fp32, "fp32"}, {bf16, "bf16"}};
};
