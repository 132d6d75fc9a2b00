// SPDX-License-Identifier: Apache-2.0
// Writes checkpoints while the run continues. Every rank's thread writes its file;
// when all have, the first rank's writes the manifest and makes the whole visible. Between the two
// the ranks communicate once, in calls of the main thread: threads here do not use MPI.
//
//     writer.start(facts, slabs);                    // collective; short
//     ...  if (no rank is busy()) writer.advance();  // collective; twice, then it is done
//     writer.finish();                               // or: wait for the rest
//
// 1. The slabs' memory must stay as it is from start() until the checkpoint is done.
// 2. A failure on any rank comes out of advance() or finish() on all (comm/control/together.hpp),
//    and the temporary directory is gone; a writer may then start again.
// 3. The bytes and hashes do not depend on the order in which ranks wait.
// 4. What is not finite is not made visible: a UserError on all ranks names it.
// 5. The destructor ends what is in progress: what is not whole stays as step-N.tmp, which the next
//    start() removes.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "layout/plan.hpp"

#include "comm/control/world.hpp"

#include "record/checkpoint/background.hpp"
#include "record/checkpoint/checkpoint.hpp"
#include "record/checkpoint/rank_file.hpp"

namespace trireme::record {

class CheckpointWriter {
 public:
  /// `plan` and `world` outlive the writer.
  CheckpointWriter(std::string run_directory,
                   const layout::Plan& plan,
                   Retention retention,
                   comm::World& world);

  /// Collective. Requires: not under_way(). Throws StorageError when the directory cannot be made.
  void start(const CheckpointFacts& facts, std::vector<Slab> mine);

  /// The same on all ranks: a checkpoint was started and is not done.
  [[nodiscard]] bool under_way() const { return stage_ != Stage::idle; }
  /// This rank's thread is at work.
  [[nodiscard]] bool busy() const { return !background_.done(); }
  /// Collective. Requires: under_way(). Waits for the ranks' threads and takes the next stage.
  /// Returns what was saved after the last one.
  std::optional<SavedCheckpoint> advance();
  /// Collective. Requires: under_way(). advance() until the checkpoint is done.
  SavedCheckpoint finish();

 private:
  enum class Stage : std::uint8_t { idle, writing, committing };

  void gather_parts();
  /// Throws UserError: a run must not resume from values that are not finite, or remove good checkpoints for them.
  void expect_finite(const std::vector<Part>& parts) const;
  void commit(const std::vector<Part>& parts);
  /// Adds those that no checkpoint of this writer had.
  void warn_once(std::vector<std::string> warnings);

  const std::string run_directory_;
  const layout::Plan& plan_;
  const Retention retention_;
  comm::World& world_;

  Stage stage_ = Stage::idle;
  CheckpointFacts facts_;
  std::vector<Slab> mine_;
  Part part_;
  SavedCheckpoint saved_;
  std::set<std::string> warned_;
  Background background_;  // last: its thread ends before what it uses
};

}  // namespace trireme::record
