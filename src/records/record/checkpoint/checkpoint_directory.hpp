// SPDX-License-Identifier: Apache-2.0
// The directory of checkpoints: names, the atomic commit of a checkpoint, and pruning. One process
// (rank 0 under the run directory's lock) changes anything here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"

#include "record/checkpoint/checkpoint.hpp"

namespace trireme::record {

/// Name of the fact in CheckpointFacts::more that marks a milestone.
inline constexpr const char* milestone_fact = "milestone";

/// RUN_DIR/checkpoints
std::string checkpoints_of(const std::string& run_directory);
/// Throws UserError about the deck key if `directory` is the run directory, if RUN_DIR/checkpoints
/// contains checkpoints or is a link to another directory, or if `directory` contains other files
/// and no sign of earlier use by trireme: its lock, `latest`, or a checkpoint.
void expect_place_of_checkpoints(const std::string& run_directory, const std::string& directory);
/// Makes RUN_DIR/checkpoints a link to `directory`, which exists and has passed
/// expect_place_of_checkpoints(), or is RUN_DIR/checkpoints itself. Throws StorageError.
void link_checkpoints(const std::string& run_directory, const std::string& directory);
/// "step-00000500"
std::string checkpoint_name(std::int64_t step);
/// The step in the name of a checkpoint, or -1: "step-" and digits, nothing else.
std::int64_t step_of(const std::string& name);
/// Temporary directory of an incomplete checkpoint: checkpoints/step-00000500.tmp.
std::string temporary_name(std::int64_t step);

/// Restores the name of a checkpoint if a process was killed in commit_temporary() after moving it
/// away, on a file system that cannot exchange two names. Throws StorageError.
void restore_replaced(const std::string& run_directory);
/// Creates the temporary directory, after removing leftovers of earlier saves. Returns messages
/// about what could not be removed. Throws StorageError if the directory cannot be created.
std::vector<std::string> prepare_temporary(const std::string& run_directory, std::int64_t step);
void remove_temporary(const std::string& run_directory, std::int64_t step) noexcept;
/// Renames the temporary directory to the checkpoint of its step, replacing one of that name
/// atomically, and then writes its name into `latest`. All files in it must be synced. Returns why
/// `latest` could not be written, or ""; throws StorageError if there is no new checkpoint.
std::string commit_temporary(const std::string& run_directory, std::int64_t step);
/// Removes the complete checkpoints that `retention` does not keep, oldest first, but not step
/// `newest`, nor copies under other names. Returns messages about what could not be removed.
std::vector<std::string> prune(const std::string& run_directory,
                               std::int64_t newest,
                               Retention retention);

/// Why the name of a checkpoint directory does not match the `step` in its manifest, or "". Users
/// and scripts rely on the name, so a copy under another name is not used.
std::string name_problem(const std::string& directory, std::int64_t step);

/// What to do if the checkpoint in `directory` cannot be used: names the next older whole one.
std::string way_out(const std::string& directory);

}  // namespace trireme::record
