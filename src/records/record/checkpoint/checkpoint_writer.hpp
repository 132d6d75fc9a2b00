// SPDX-License-Identifier: Apache-2.0
// Writes checkpoints while the run continues. A thread of every rank writes the rank's file. When
// all are written, rank 0's thread writes the manifest and makes the checkpoint visible. Between
// the two stages the ranks communicate once, in calls of the main thread: these threads do not use
// MPI.
//
//     writer.start(facts, slabs);                    // collective; short
//     ...  if (no rank is busy()) writer.advance();  // collective; twice, then it is done
//     writer.finish();                               // or: wait for the rest
//
// 1. The slabs' memory must not change from start() until the checkpoint is done.
// 2. A failure on any rank is thrown by advance() or finish() on all (comm/control/together.hpp),
//    and the temporary directory is removed. The writer may then start again.
// 3. The bytes and hashes do not depend on the order in which ranks wait.
// 4. A checkpoint with an element that is not finite does not become visible: a UserError on all
//    ranks names the element.
// 5. The destructor ends work in progress. An incomplete checkpoint stays as step-N.tmp, which the
//    next start() removes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "layout/plan.hpp"

#include "comm/control/world.hpp"

#include "record/checkpoint/checkpoint.hpp"
#include "record/checkpoint/rank_file.hpp"

namespace trireme::record {

/// The slabs in the file of `rank`.
struct RankSlabs {
  int rank = 0;
  std::vector<Slab> slabs;
};

class CheckpointWriter {
 public:
  /// `plan` and `world` must outlive the writer.
  CheckpointWriter(std::string run_directory,
                   const layout::Plan& plan,
                   Retention retention,
                   comm::World& world)
      : run_directory_(std::move(run_directory)),
        plan_(plan),
        retention_(retention),
        world_(world) {}

  /// Collective. Requires: not under_way(). Throws StorageError if the directory cannot be created.
  void start(const CheckpointFacts& facts, std::vector<Slab> mine) {
    start_files(facts, {{world_.rank(), std::move(mine)}});
  }
  /// The same for files of any ranks, such as those of an earlier world; one rank passes each file.
  void start_files(const CheckpointFacts& facts, std::vector<RankSlabs> files);

  /// Whether a checkpoint was started and is not done; the same on all ranks.
  [[nodiscard]] bool under_way() const { return stage_ != Stage::idle; }
  /// Whether this rank's thread is working.
  [[nodiscard]] bool busy() const {
    return outcome_.valid() &&
           outcome_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  }
  /// Collective. Requires: under_way(). Waits for the ranks' threads and starts the next stage.
  /// Returns the saved checkpoint after the last one.
  std::optional<SavedCheckpoint> advance();
  /// Collective. Requires: under_way(). advance() until the checkpoint is done.
  SavedCheckpoint finish();

 private:
  enum class Stage : std::uint8_t { idle, writing, committing };

  /// Runs `work` on this rank's thread. The destructor requests its end and waits for it.
  void start_work(std::function<void(const std::stop_token&)> work);
  void gather_parts();
  /// Throws UserError for values that are not finite: a run must not resume from them, nor remove
  /// good checkpoints in their favour.
  void expect_finite(const std::vector<Part>& parts) const;
  void commit(const std::vector<Part>& parts);
  /// Adds only warnings that no earlier checkpoint of this writer had.
  void warn_once(std::vector<std::string> warnings);

  const std::string run_directory_;
  const layout::Plan& plan_;
  const Retention retention_;
  comm::World& world_;

  Stage stage_ = Stage::idle;
  CheckpointFacts facts_;
  std::vector<RankSlabs> files_;
  std::vector<Part> parts_;  // of the ranks in files_
  SavedCheckpoint saved_;
  std::set<std::string> warned_;
  std::future<void> outcome_;  // result of the work
  std::jthread thread_;        // last member, so it is joined before the others are destroyed
};

}  // namespace trireme::record
