// SPDX-License-Identifier: Apache-2.0
// The computing part of a run: device, data, model, engine, optimizer, and the step that uses all
// of them. The trainer adds the record to a session; `trireme verify` and tests run several
// sessions of one deck and compare them.
//
// A step: zero the gradients; for each micro-step load, forward and backward; with reduction: tree,
// set each leaf's gradients aside; the engine reduces buckets as they become ready; the optimizer
// adds norm and loss over the ranks and updates the elements that this rank owns; one small
// exchange adds the ranks' requests (stop signals, for example).
//
// A step is enqueued, and its outcome is read later. The host waits for compute only when it reads
// the outcome and, when it loads a micro-batch, for the copy of the second-last one. A thread reads
// the tokens of micro-batches ahead (batches/read_ahead.hpp). On a CPU a step has ended when it is
// enqueued.
//
// 1. A member that uses a stream or communicator is declared after it, and destroyed before it.
// 2. Construction, enqueue(), outcome() and step() are collective.
// 3. The first step fills the scratch pool; after it the pool no longer grows, and micro-steps
//    may be captured and replayed (micro_step_graphs.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "device/device.hpp"
#include "device/energy.hpp"
#include "device/pool.hpp"
#include "device/recorder.hpp"
#include "layout/plan.hpp"

#include "model/gpt.hpp"

#include "comm/communicator.hpp"
#include "comm/control/interruption.hpp"
#include "comm/control/temporary_directory.hpp"
#include "comm/control/world.hpp"
#include "reduce/engine.hpp"
#include "reduce/replicas.hpp"

#include "batches/batches.hpp"
#include "batches/dataset.hpp"
#include "batches/read_ahead.hpp"

#include "record/checkpoint/checkpoint.hpp"

#include "optim/optimizer.hpp"
#include "session/job.hpp"
#include "session/micro_step_graphs.hpp"
#include "session/microbatch.hpp"
#include "session/rank_memory.hpp"
#include "session/stop.hpp"

namespace trireme::session {

struct StepOutcome : optim::StepResult {
  double loss = 0;           ///< mean over the global batch
  double bits_per_byte = 0;  ///< the same in bits per byte of text; NaN: not known
  /// Mean over the step's leaves of the squared norm of their mean gradients, before clipping; in
  /// steps that evaluate.noise_scale measures.
  std::optional<double> leaf_norm_squared;
  std::vector<optim::LayerNorm> norms;  ///< of steps that record.norms_every_steps measures
  std::int64_t tokens = 0;
  double seconds = 0;
  double began = 0, optimizer_began = 0;         ///< seconds of the host's steady clock
  double control_begin = 0, control_waited = 0;  ///< the agreement on requests: begin, duration
  double average_begin = 0, average_waited = 0;  ///< of the replicas, after local steps
  device::Energy energy;                         ///< of all ranks, as far as it can be read
  device::Energy own_energy;                     ///< this rank's part
  reduce::StepTimes times;  ///< valid until the next outcome; exposed_s includes all of these waits
};

struct Evaluation {
  double loss = 0;           ///< mean, nats per token
  double bits_per_byte = 0;  ///< NaN: not known
};
/// `nats` of tokens with `bytes` bytes of text, in bits per byte; NaN if `bytes` is 0. In this unit,
/// losses of different vocabularies can be compared. A special token has nats but no bytes.
double bits_per_byte(double nats, std::int64_t bytes);
/// Bytes of text of each token; empty without a tokenizer.
std::vector<std::int32_t> bytes_of_all_tokens(const text::Tokenizer* tokenizer);

/// The data of a deck, the same on every rank: rank 0 examines the files, builds the caches of
/// text, and broadcasts the result. `sources` gets the streams. Collective.
batches::Split open_data(const Job& job,
                         const std::string& cache_directory,
                         comm::World& world,
                         Log& log,
                         batches::Sources* sources = nullptr);

/// The token cache of a command that has no run directory. Throws UserError if it would hold text
/// for ranks of other hosts, which cannot read it.
class TemporaryCache : public comm::TemporaryDirectory {
 public:
  TemporaryCache(const Job& job, comm::World& world);
};

/// Turns layers' calls of hooks (nn/hooks.hpp) into calls of the engine, on the thread that
/// enqueues. The stream is the engine's compute stream, so it is not passed on.
class EngineHooks final : public model::Hooks {
 public:
  explicit EngineHooks(reduce::Engine& engine) : engine_(engine) {}

  void before_use(std::span<const ParameterIndex> parameters, device::Stream& /*stream*/) override {
    engine_.before_use(parameters);
  }
  void before_write(ParameterIndex parameter, device::Stream& /*stream*/) override {
    engine_.before_write(parameter);
  }
  void gradient_ready(ParameterIndex parameter, device::Stream& /*stream*/) override {
    engine_.mark_ready(parameter);
  }

 private:
  reduce::Engine& engine_;
};

class Session {
 public:
  /// `job`, `data` and `world` must outlive the session. `poison`: leased scratch starts as NaN.
  Session(const Job& job, const batches::Split& data, comm::World& world, bool poison = false);

  /// Enqueues step number `number`, counted from 1, and returns the sum of the requests of all
  /// ranks. `ask` returns this rank's requests; it is called once, after everything is enqueued.
  template <class Ask>
  Requests enqueue(std::int64_t number, Ask&& ask) {
    compute(number);
    return finish_step(number, ask());
  }
  /// The outcome of step `number`, the last one or the one before; waits until the step has ended.
  /// Call it once for each step, before the step after the next one begins. Throws UserError, on
  /// all ranks, if the gradient is not finite.
  StepOutcome outcome(std::int64_t number);
  template <class Ask>
  StepOutcome step(std::int64_t number, Ask&& ask) {
    enqueue(number, ask);
    return outcome(number);
  }

  /// Spans that are recorded from now on belong to the end of step `number`.
  void record_for(std::int64_t number);

  [[nodiscard]] batches::Batches batches(std::int64_t step) const {
    return batches_of(job, sizes.at(step), world.size());
  }

  /// Validation loss, if the deck has evaluation and validation data: the mean over the same
  /// sequences every time, without dropout. They are cut into micro-batches by their position, so
  /// each has the same bits with any number of ranks, and so has the loss, which is an order-free
  /// sum. Collective. Throws comm::Interrupted when `interrupts` is true on any rank.
  std::optional<Evaluation> evaluate(const comm::Wanted& interrupts = {});

  /// record::load_checkpoint() into memory of the device. Collective.
  record::CheckpointFacts load(const std::string& directory,
                               std::vector<record::MutableSlab> slabs,
                               comm::World& among);

  /// The parameters as they are bound now. Before compute reads them it must wait for all of them
  /// (Engine::wait_for_parameters).
  [[nodiscard]] std::vector<ConstView> parameter_views() const;

  /// Collective. Throws CommError on all ranks when their parameters differ after `step`.
  void check_replicas(std::int64_t step);

  const Job& job;
  const batches::Split& data;
  comm::World& world;
  const batches::BatchSizes sizes;
  /// Remarks for the log about choices that depend on the machine, one line each.
  std::vector<std::string> choices;
  const std::unique_ptr<device::Device> device;
  device::EnergyMeter energy;
  const DType dtype;
  const std::unique_ptr<device::Stream> compute_stream;
  device::ScratchPool scratch;
  const layout::Plan plan;
  const model::GptShape shape;  ///< job.shape with the decided recomputation
  const std::unique_ptr<comm::Communicator> communicator;
  reduce::Engine engine;
  model::Gpt model;
  optim::Optimizer optimizer;
  EngineHooks hooks;
  std::optional<MicroStepGraphs> graphs;  ///< with gpu.graphs
  std::string without_graphs;             ///< why gpu.graphs: auto does not use them on this GPU
  device::Recorder recorder;
  std::uint64_t next_sample = 0;  ///< global index of the sample after the last one trained on
  /// What made the sum of gradients of the latest update their mean, in this run or an earlier one;
  /// 0: not known. Errors of compression are in the unit of that sum.
  double gradient_scale = 0;

 private:
  /// A rank with another plan would wait forever in a collective.
  void expect_equal_plans();
  void choose_graphs();
  void compute(std::int64_t number);
  [[nodiscard]] bool measures_noise(std::int64_t number) const {
    const std::int64_t every = job.evaluate.noise_scale.every_steps;
    return every > 0 && number % every == 0;
  }
  [[nodiscard]] bool measures_norms(std::int64_t number) const {
    const std::int64_t every = job.record.norms_every_steps;
    return every > 0 && number % every == 0;
  }
  [[nodiscard]] std::int64_t local_steps() const { return job.optimizer.outer.local_steps; }
  /// The optimizer's number of the last update of a step.
  [[nodiscard]] std::int64_t last_update(std::int64_t number) const {
    return number * local_steps();
  }
  /// In each of its local steps.
  [[nodiscard]] std::int64_t sequences_of_replica(const batches::Batches& batch) const;
  /// One update of the optimizer from its part of the step's micro-batches.
  void update(std::int64_t number, std::int64_t local_step);
  void finish_local_step(std::int64_t number, std::int64_t local_step);
  void micro_steps(std::int64_t number, std::int64_t local_step);
  /// `sequences`: those to train on; 0: the pass is made for the other ranks only.
  void train_micro_step(std::int64_t sequences, bool first, bool last);
  Requests finish_step(std::int64_t number, Requests mine);

  /// Events on compute, and other data of a step, until its outcome is read.
  struct PendingStep {
    std::unique_ptr<ops::StreamSum> leaf_squares;  ///< of this rank; null if no step needs them
    std::int64_t engine_step = 0;
    std::int64_t text_bytes = 0;  ///< of the step's targets, of all ranks
    StepOutcome outcome;          ///< energy and the agreement; the rest is not known yet
    struct Local {
      optim::StepResult result;  ///< of the last local step
      double waited = 0;         ///< for the network, in those before
      std::string not_finite;    ///< of the first one that was skipped
    } local;
    std::unique_ptr<device::Event> began, optimizer_began, optimizer_ended, averaged, ended;
  };
  /// Collective: the result of the last local step, with the loss of all replicas and the first
  /// skipped update in them.
  optim::StepResult result_of_replicas(const PendingStep& pending);
  /// Collective: over the leaves of all ranks. Requires: compute has completed step `number`.
  double leaf_norm_squared(std::int64_t number);
  PendingStep& pending_of(std::int64_t number) {
    return pending_[static_cast<std::size_t>(number) % pending_.size()];
  }

  reduce::Replicas replicas_;
  const std::vector<std::int32_t> bytes_of_;  // bytes of text of each token; empty: not known
  batches::ReadAhead read_ahead_;
  std::int64_t text_bytes_ = 0;  // bytes of text of this rank's targets in this step
  MicroBatch micro_batch_;
  ops::StreamSum losses_;
  std::optional<optim::LayerNorms> norms_;  // if the deck wants them
  std::array<PendingStep, 2> pending_;      // of even and odd steps
};

}  // namespace trireme::session
