// SPDX-License-Identifier: Apache-2.0
// How a run comes to its record: a new one, its own continued, or a new one beside what cannot be
// continued. Nothing is overwritten or removed: what is in the way is moved aside, under a name
// that holds the reason, and the log notes it.
//
//   run.h5.attempt-1   of a start that was killed before its first checkpoint
//   run.h5.damaged-1   beyond repair; the run goes on with a new record from its checkpoint
//   run.h5.journal.moved-1  of a record that was moved away without its journal
//
// The JSON lines of record.also (record/also/also_files.hpp) are started or continued with it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/log.hpp"

#include "comm/control/world.hpp"

#include "record/run/run_directory.hpp"
#include "record/run/run_file.hpp"

#include "session/job.hpp"

namespace trireme::train {

/// Whether the run in `path` has made all its steps: by its newest checkpoint, or by its record
/// where the deck asks for no checkpoints.
bool is_finished(const session::Job& job, const std::string& path);
/// Collective. The run directory, or the first of DIRECTORY-2, DIRECTORY-3, … that is not finished,
/// when the deck asks for a new run then.
std::string choose_directory(const session::Job& job, comm::World& world);
/// Two runs in one directory would overwrite each other's files.
void warn_unlocked(const record::RunDirectory& directory, Log& log);

/// Rank 0, once the record is closed. Throws StorageError when it cannot be read, or warns where
/// the run is not `whole` and is to be resumed.
void expect_readable(const std::string& path, bool whole, Log& log);

/// Rank 0, before anything but the directory is made. Gives a checkpoint back the name that a save
/// which was killed had taken from it. Throws StorageError when the run had
/// checkpoints and none is there now, unless the deck asks for step 0.
void expect_known_checkpoints(const record::RunDirectory& directory, const session::Job& job);

/// Rank 0. `resumed_step`: of the checkpoint that the run goes on from. Throws UserError when
/// another run's record, or none of ours, is at `path`; StorageError.
record::RunFile open_record(const std::string& path,
                            const record::RunHeader& header,
                            std::optional<std::int64_t> resumed_step,
                            const session::Job& job,
                            Log& log);

}  // namespace trireme::train
