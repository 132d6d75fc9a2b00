// SPDX-License-Identifier: Apache-2.0
// `trireme checkpoints RUN_DIR`: what lies in the run's checkpoints, oldest first, beside the
// losses that run.h5 has for their steps. With `verify` every byte is read against its hash.
//
// 1. Nothing is changed and no lock is taken: a run may write in the directory meanwhile. What it
//    removes meanwhile is left out.
// 2. Without `verify` a checkpoint is "whole" when its manifest matches its hash and every rank
//    file is there with its size; the files' bytes are not read.
// 3. What the system could not read is "unreadable" and never "damaged": it may be whole, and
//    should not be removed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"

#include "record/checkpoint/verify_checkpoint.hpp"

namespace trireme::cli {

enum class CheckpointState : std::uint8_t { whole, verified, damaged, unreadable };

struct CheckpointLine {
  std::int64_t step = 0;
  std::string directory;
  std::int64_t bytes = 0;  ///< of all ranks' files; as `ranks`, 0 where the manifest is damaged
  int ranks = 0;           ///< that wrote it
  std::string date_and_time;
  bool milestone = false;                ///< checkpoint.keep never removes it
  double loss = 0, validation_loss = 0;  ///< at that step, nat/token; NaN: not known
  CheckpointState state = CheckpointState::whole;
  std::vector<record::CheckpointDamage> damage = {};
};

struct CheckpointTable {
  std::string run_directory;
  std::vector<CheckpointLine> lines;
  std::string note;  ///< why no loss is known; "" otherwise
};

/// Throws UserError when there is no such directory, StorageError when it cannot be listed.
CheckpointTable checkpoint_table(const std::string& run_directory, bool verify);

/// For people: a line per checkpoint.
std::string checkpoint_text(const CheckpointTable& table);
/// "FILE: what", a line for each damage.
std::vector<std::string> damage_lines(const CheckpointTable& table);
/// An object with run_directory, note and checkpoints; what is not known is null.
std::string checkpoint_json(const CheckpointTable& table);

/// What `--verify` ends with: done, user_error when a checkpoint is damaged, environment when none
/// is and a file could not be read.
ExitCode checkpoint_verdict(const CheckpointTable& table);

}  // namespace trireme::cli
