// SPDX-License-Identifier: Apache-2.0
// Between the run's state and its checkpoints: which memory holds which elements of which
// parameter, and where a run begins.
//
// A checkpoint of step 0, which `trireme import` makes, holds weights alone: the optimizer's state
// begins at zero. All others hold, per parameter, "master" (the weights, in fp32), "moment1" and
// "moment2" (in the run's optimizer.moment_dtype; a run that goes on with another one, which its
// deck must allow, rounds them to nearest or widens them), and the position of the data. bf16 parameters are the rounded master weights, so they
// are not stored; which precision the run had is, because its losses depend on it: a run goes on in
// the precision that it began with. Each rank saves and loads the pieces that it owns under the
// plan; what the others own arrives by the engine's gather, and is compared with what its owners
// hold before the first step.
//
// Saving copies what this rank owns into a snapshot, made once, and writes that while the steps go
// on (record/checkpoint/checkpoint_writer.hpp). With `checkpoint.asynchronous: false` on a CPU
// there is no snapshot: the state itself is written, and the run waits. A deck that asks for no
// checkpoints may still be asked for one, by a signal or by its end; the snapshot is made then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/log.hpp"

#include "device/device.hpp"
#include "layout/plan.hpp"

#include "comm/control/world.hpp"

#include "reduce/engine.hpp"

#include "optim/optimizer.hpp"
#include "record/checkpoint/checkpoint_writer.hpp"

#include "session/job.hpp"
#include "weights/checkpoint_weights.hpp"
#include "weights/initial_weights.hpp"

namespace trireme::session {

using weights::model_facts, weights::shape_from;

/// Whether a run has a snapshot's memory from its start on.
bool holds_snapshot(const record::CheckpointConfig& config, device::Kind kind);

class Saver {
 public:
  struct Resumed {
    std::string directory;
    record::CheckpointFacts facts;
  };

  struct Saved {
    record::SavedCheckpoint files;
    std::int64_t step = 0;
    double begin = 0;     ///< steady clock when the run was first held up for it
    double copy_s = 0;    ///< into the snapshot
    double stall_s = 0;   ///< the run was paused for it, the copy included
    double needed_s = 0;  ///< what it would take alone: copy, files, commit
  };

  Saver(const Job& job,
        const layout::Plan& plan,
        reduce::Engine& engine,
        optim::Optimizer& optimizer,
        device::Device& device,
        comm::World& world);

  /// Collective. Loads the newest checkpoint in `run_directory`; nothing when there is none. Throws
  /// UserError when it is damaged or of another model, seed or precision.
  std::optional<Resumed> load_newest(const std::string& run_directory,
                                     Log& log,
                                     device::Stream& compute);
  /// Collective. GPT-2's initial values, a pure function of the seed.
  void initialize(device::Stream& compute);
  /// Collective. The weights that run.initial_weights names; what of them a checkpoint states.
  /// Throws UserError when they do not fit the model, each finding at its key of the deck.
  record::NameValues start_from_files(Log& log, device::Stream& compute);

  /// Makes the snapshot's memory where the run holds one, and sets where checkpoints go, and what
  /// they state of the run in addition to the job (`more`); before the first begin().
  void prepare(const std::string& run_directory, record::NameValues more);
  [[nodiscard]] std::size_t snapshot_bytes() const { return snapshot_.bytes(); }

  /// Collective. Requires: nothing under way. Takes the snapshot and starts writing it. `now`: what
  /// the checkpoint states in addition to prepare()'s, as it is after this step.
  void begin(std::int64_t step,
             std::uint64_t next_sample,
             device::Stream& compute,
             const record::NameValues& now = {});
  /// The same on all ranks: a checkpoint was begun and is not done.
  [[nodiscard]] bool under_way() const { return writer_ && writer_->under_way(); }
  /// Of this rank alone: its part is still being written.
  [[nodiscard]] bool writing() const { return writer_ && writer_->busy(); }
  /// Collective. Requires: under_way(). The next stage; what was saved after the last one.
  std::optional<Saved> advance();
  /// Collective. Requires: under_way(). Waits until the checkpoint is done.
  Saved finish();

 private:
  /// Of the parameters, as the deck writes it: fp32, bf16.
  [[nodiscard]] std::string precision() const;
  void make_snapshot();
  /// Writes the weights that this rank keeps, from memory of the host that `fill` fills.
  void write_masters(const std::function<void(const record::MutableSlab& slab, View values)>& fill,
                     device::Stream& compute);
  std::vector<record::Slab> owned_state(device::Stream& compute);

  const Job& job_;
  const layout::Plan& plan_;
  reduce::Engine& engine_;
  optim::Optimizer& optimizer_;
  device::Device& device_;
  comm::World& world_;

  device::Buffer snapshot_;
  record::NameValues more_;
  Saved saved_;
  std::optional<record::CheckpointWriter> writer_;  // last: it reads the snapshot while it lives
};

}  // namespace trireme::session
