// SPDX-License-Identifier: Apache-2.0
// Saves the run's state to checkpoints and loads it, and sets the state at the start of a run.
//
// A checkpoint of step 0, which `trireme import` writes, holds only weights: the optimizer's state
// starts at zero. All others hold, per parameter, "master" (the weights, in fp32), "moment1" and
// "moment2" (in the run's optimizer.moment_dtype; a run that resumes with another one, which its
// deck must allow, rounds them to nearest or widens them), and the position of the data. bf16
// parameters are the rounded master weights, so they are not stored. The precision of the run is
// stored, because its losses depend on it: a run must resume in the same precision. Each rank saves
// and loads the pieces that it owns under the plan; the engine gathers the others, and before the
// first step the ranks compare their parameters. What compression of gradients keeps between steps
// is stored as well (compression_state.hpp). With local steps each replica writes its moments:
// replica 0 as "moment1", replica r as "moment1-r".
//
// Saving copies the state that this rank owns into a snapshot, which is allocated once, and writes
// the snapshot while steps continue (record/checkpoint/checkpoint_writer.hpp). With
// `checkpoint.asynchronous: false` on a CPU there is no snapshot: the state itself is written, and
// the run waits. Without checkpoints in the deck, a signal or the end of the run may still request
// one; the snapshot is allocated then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "device/device.hpp"

#include "comm/control/world.hpp"

#include "record/checkpoint/checkpoint_writer.hpp"
#include "weights/checkpoint_weights.hpp"
#include "weights/initial_weights.hpp"

#include "session/job.hpp"
#include "session/memory_copies.hpp"

namespace trireme::session {

class Session;

using weights::model_facts, weights::shape_from;

/// The facts in every checkpoint of the job; a run adds its step, its next sample, and more.
record::CheckpointFacts facts_of(const Job& job);

/// Whether a run on `ranks` ranks keeps copies of its state in memory.
bool keeps_memory_copies(const Sections& config, int ranks);
/// Why it keeps none though the deck asks for them, and what to do; else empty.
std::string why_no_memory_copies(const Sections& config, int ranks);

/// Whether a run allocates the snapshot at its start.
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
    double begin = 0;     ///< steady clock when the run first paused for it
    double copy_s = 0;    ///< seconds of the copy into the snapshot
    double stall_s = 0;   ///< seconds in which the run paused, the copy included
    double needed_s = 0;  ///< seconds without overlap: copy, files, commit
  };

  /// Of the state of `session`, which must outlive it, among the ranks of `world`.
  Saver(Session& session, comm::World& world);

  using Allow = std::function<void(const Resumed&)>;
  /// Collective. Loads the newest checkpoint in `run_directory`, if there is one. Throws UserError
  /// if it is damaged or has another model or precision. Rank 0 calls `expect_allowed` before that.
  std::optional<Resumed> load_newest(const std::string& run_directory,
                                     Log& log,
                                     const Allow& expect_allowed = {});
  /// Collective. Sets GPT-2's initial values, a pure function of the seed.
  void initialize();
  /// Collective. Loads the weights that run.initial_weights names; returns facts about them for
  /// checkpoints. Throws UserError with a finding per key of the deck if they do not fit the model.
  record::NameValues start_from_files(Log& log);

  /// Call before the first begin(). Allocates the snapshot if the run has one, and sets the
  /// directory of checkpoints and facts for them in addition to those of the job (`more`).
  void prepare(const std::string& run_directory, record::NameValues more);
  [[nodiscard]] std::size_t snapshot_bytes() const { return snapshot_.bytes(); }

  /// Collective. Requires: not under_way(). Takes the snapshot and starts to write it. `now`: facts
  /// after this step, in addition to those of prepare().
  void begin(std::int64_t step, const record::NameValues& now = {});
  /// Collective. Copies the same state into the memory of the ranks.
  void copy_to(MemoryCopies& copies, std::int64_t step, const record::NameValues& now);
  /// Collective. Writes the newest copy as a checkpoint, if it is newer than the one on the disk.
  std::optional<Saved> write_from(const MemoryCopies& copies,
                                  const std::string& run_directory,
                                  Log& log);
  /// Whether a checkpoint was begun and is not complete; the same on all ranks.
  [[nodiscard]] bool under_way() const { return writer_ && writer_->under_way(); }
  /// Whether this rank's part is still being written.
  [[nodiscard]] bool writing() const { return writer_ && writer_->busy(); }
  /// Collective. Requires: under_way(). Does the next stage; after the last one returns the result.
  std::optional<Saved> advance();
  /// Collective. Requires: under_way(). Waits until the checkpoint is complete.
  Saved finish();

 private:
  record::NameValues start_from(const std::string& place, Log& log);
  void load_moments(const std::string& directory, const record::CheckpointFacts& facts);
  /// The precision of the parameters, as in the deck: fp32, bf16.
  [[nodiscard]] std::string precision() const;
  [[nodiscard]] record::CheckpointFacts facts_of_step(std::int64_t step,
                                                      const record::NameValues& now) const;
  [[nodiscard]] record::Retention retention() const {
    return {job_.checkpoint.keep, job_.checkpoint.keep_every};
  }
  void make_snapshot();
  /// Writes the weights that this rank keeps. `fill` writes the values to host memory.
  void write_masters(const std::function<void(const record::MutableSlab& slab, View values)>& fill);
  [[nodiscard]] std::vector<record::MutableSlab> slabs_to_write() const;
  std::vector<record::Slab> owned_state();

  Session& session_;
  const Job& job_;
  comm::World& world_;

  device::Buffer snapshot_;
  record::NameValues more_;
  Saved saved_;
  std::optional<record::CheckpointWriter> writer_;  // last: reads the snapshot until destroyed
};

}  // namespace trireme::session
