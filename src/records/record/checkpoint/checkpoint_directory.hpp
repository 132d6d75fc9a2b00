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

/// Among CheckpointFacts::more of a milestone.
inline constexpr const char* milestone_fact = "milestone";

/// RUN_DIR/checkpoints
std::string checkpoints_of(const std::string& run_directory);
/// Throws UserError about the key if `directory` is the run directory, if there are checkpoints in
/// RUN_DIR/checkpoints or that leads elsewhere, or if `directory` has other files, and no sign that
/// trireme has used it: its lock, `latest`, or a checkpoint.
void expect_place_of_checkpoints(const std::string& run_directory, const std::string& directory);
/// Makes RUN_DIR/checkpoints a link to `directory`, which exists and was found to be such a place,
/// or is RUN_DIR/checkpoints itself. Throws StorageError.
void link_checkpoints(const std::string& run_directory, const std::string& directory);
/// "step-00000500"
std::string checkpoint_name(std::int64_t step);
/// The step in the name of a checkpoint, or -1: "step-" and digits, nothing else.
std::int64_t step_of(const std::string& name);
/// checkpoints/step-00000500.tmp, the directory until the checkpoint is complete.
std::string temporary_name(std::int64_t step);

/// Restores the name of a checkpoint that commit_temporary() had moved away when the process was
/// killed, on a file system that cannot exchange two names. Throws StorageError.
void restore_replaced(const std::string& run_directory);
/// Creates the temporary directory, after removing what earlier saves left under our names. Returns
/// messages about what could not be removed; throws StorageError if that is in the way.
std::vector<std::string> prepare_temporary(const std::string& run_directory, std::int64_t step);
void remove_temporary(const std::string& run_directory, std::int64_t step) noexcept;
/// Renames the temporary directory to the checkpoint of its step, replacing one of that name
/// atomically, and then writes its name into `latest`. All files in it must be synced. Returns why
/// `latest` could not be written, or ""; throws StorageError if there is no new checkpoint.
std::string commit_temporary(const std::string& run_directory, std::int64_t step);
/// Removes the complete checkpoints that `retention` does not keep, oldest first, and never that of
/// step `newest`. Copies under names that checkpoint_name() does not give are not looked at.
/// Returns messages about what could not be removed.
std::vector<std::string> prune(const std::string& run_directory,
                               std::int64_t newest,
                               Retention retention);

/// Why the name of a checkpoint's directory, whose manifest is of `step`, is wrong, or "". Users
/// and scripts rely on the name, so a copy under another name is not used.
std::string name_problem(const std::string& directory, std::int64_t step);

/// What to do if the checkpoint in `directory` cannot be used: names the next older whole one.
std::string way_out(const std::string& directory);

}  // namespace trireme::record
