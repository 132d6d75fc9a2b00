// SPDX-License-Identifier: Apache-2.0
// `trireme checkpoints RUN_DIR`: lists the checkpoints of a run, oldest first, with the losses that
// run.h5 has for their steps. With `verify` every byte is compared with its hash.
//
// 1. Nothing is changed or locked, so a run may be active. Checkpoints that it removes are omitted.
// 2. Without `verify` a checkpoint is "whole" if its manifest matches its hash and every rank file
//    exists with its size; the contents of rank files are not read.
// 3. A file that the system cannot read is "unreadable", not "damaged": it may be whole; keep it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"

#include "record/checkpoint/checkpoint.hpp"
#include "record/checkpoint/piece_reader.hpp"
#include "record/run/rows.hpp"

namespace trireme::cli {

enum class CheckpointState : std::uint8_t { whole, verified, damaged, unreadable };

struct CheckpointLine : record::FoundCheckpoint {
  /// At its step, nat/token; NaN: unknown.
  double loss = record::not_known, validation_loss = record::not_known;
  CheckpointState state = CheckpointState::whole;
  std::vector<record::CheckpointDamage> damage = {};
};

struct CheckpointTable {
  std::string run_directory;
  std::vector<CheckpointLine> lines;
  std::string note;  ///< why no loss is known; else ""
};

/// Throws UserError if there is no such directory, StorageError if it cannot be listed.
CheckpointTable checkpoint_table(const std::string& run_directory, bool verify);

std::string checkpoint_text(const CheckpointTable& table);
/// "FILE: problem", one line per problem.
std::vector<std::string> damage_lines(const CheckpointTable& table);
/// An object with run_directory, note and checkpoints; unknown values are null.
std::string checkpoint_json(const CheckpointTable& table);

/// The exit code of `--verify`: user_error if a checkpoint is damaged, else environment if a file
/// could not be read, else done.
ExitCode checkpoint_verdict(const CheckpointTable& table);

}  // namespace trireme::cli
