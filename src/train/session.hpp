// SPDX-License-Identifier: Apache-2.0
// Everything that computes in a run, without anything that the run writes down: machine, data,
// model, engine, optimizer, and the one step that all of them make together. The trainer wraps a
// session in a record; `trireme verify` and tests run several sessions of one deck side by side and
// compare them.
//
// A step: zero the gradients; for each micro-step load, forward and backward; where gradients are
// added as a tree, set each leaf's aside; the engine reduces buckets as they become ready; the
// optimizer updates what this rank owns; one small exchange gives the loss and what was asked for.
//
// 1. Member order is construction order, and its reverse the order of teardown: what uses a stream
// or a communicator goes first.
// 2. Construction and step() are collective.
// 3. The first step warms the scratch pool up; after it the pool no longer grows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/log.hpp"

#include "device/device.hpp"
#include "device/pool.hpp"
#include "layout/plan.hpp"

#include "comm/communicator.hpp"
#include "comm/world.hpp"
#include "data/dataset.hpp"
#include "timing/recorder.hpp"

#include "model/gpt.hpp"
#include "reduce/engine.hpp"

#include "optim/adamw.hpp"

#include "train/batches.hpp"
#include "train/evaluator.hpp"
#include "train/exchange.hpp"
#include "train/job.hpp"
#include "train/microbatch.hpp"
#include "train/model_hooks.hpp"

namespace trireme::train {

struct StepOutcome {
  double loss = 0;  ///< mean over the global batch
  double grad_norm = 0;
  double learning_rate = 0;
  std::int64_t tokens = 0;
  double seconds = 0;
  double began = 0, optimizer_began = 0;  ///< seconds of the host's steady clock
  bool checkpoint = false;                ///< some rank was asked to save
  bool stop = false;                      ///< some rank was asked to end
  bool writing = false;                   ///< some rank is writing a checkpoint
};

/// The data of a deck, the same on every rank: rank 0 builds the token cache, then all map it.
/// Collective.
data::Split open_data(const Job& job,
                      const std::string& cache_directory,
                      comm::World& world,
                      Log& log);

class Session {
 public:
  /// `job`, `data` and `world` outlive the session. `poison`: leased scratch is NaN until written.
  Session(const Job& job, const data::Split& data, comm::World& world, bool poison = false);

  /// Step number `number`, counted from 1. `ask` is called once, when the step's work is done and
  /// before the exchange.
  template <class Ask>
  StepOutcome step(std::int64_t number, Ask&& ask) {
    const double begin = timing::steady_seconds();
    timing::Span whole(recorder, timing::Name::step);
    compute(number);
    return finish_step(begin, ask(), whole);
  }

  /// Mean validation loss; nothing when the deck asks for no evaluation or has no validation data.
  std::optional<double> evaluate();

  const Job& job;
  const data::Split& data;
  comm::World& world;
  const Batches batches;
  const std::unique_ptr<device::Device> device;
  const DType dtype;
  const std::unique_ptr<device::Stream> compute_stream;
  device::ScratchPool scratch;
  const layout::Plan plan;
  const std::unique_ptr<comm::Communicator> communicator;
  reduce::Engine engine;
  model::Gpt model;
  optim::AdamW optimizer;
  EngineHooks hooks;
  timing::Recorder recorder;
  /// Global index of the first sample not yet trained on.
  std::uint64_t next_sample = 0;

 private:
  /// A rank with another plan would wait for collectives that never come.
  void expect_equal_plans();
  void compute(std::int64_t number);
  void micro_steps();
  StepOutcome finish_step(double begin, const Requests& mine, timing::Span& whole);

  MicroBatch micro_batch_;
  Exchange exchange_;
  std::optional<Evaluator> evaluator_;
  ops::StreamSum losses_;
  optim::StepResult result_;
  double optimizer_began_ = 0;
};

}  // namespace trireme::train
