// SPDX-License-Identifier: Apache-2.0
// How a run comes to its record: a new one, its own continued, or a new one beside what cannot be
// continued. Nothing is overwritten or removed: what is in the way is moved aside, under a name
// that holds the reason, and the log notes it.
//
//   run.h5.attempt-1   of a start that was killed before its first checkpoint
//   run.h5.damaged-1   beyond repair; the run goes on with a new record from its checkpoint
//
// The JSON lines of record.also (record/also/also_files.hpp) are started or continued with it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/log.hpp"

#include "record/run/run_directory.hpp"
#include "record/run/run_file.hpp"

#include "session/job.hpp"

namespace trireme::train {

/// Rank 0, before anything but the directory is made. Throws StorageError when the run had
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
