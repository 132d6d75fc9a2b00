// SPDX-License-Identifier: Apache-2.0
// Opens the record of a run: a new one, or that of an earlier start, or a new one in place of a
// record that cannot be continued. Nothing is overwritten or removed. A file that is in the way is
// moved aside under a name that states the reason, and the log notes it. For steps.jsonl and
// run.h5:
//
//   run.h5.attempt-1   from a start that was killed before its first checkpoint
//   run.h5.damaged-1   no line of steps.jsonl can be read
//   run.h5.earlier-1   steps.jsonl was moved away
//   run.h5.changed-1   another program changed run.h5 (record/run/run_record.hpp)
//
// deck.resolved.yaml is moved aside, too, if it is not as the run wrote it, and a log.txt in a
// directory without steps.jsonl.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/log.hpp"

#include "comm/control/world.hpp"

#include "record/run/run_directory.hpp"
#include "record/run/run_record.hpp"

#include "session/job.hpp"

namespace trireme::train {

/// Whether the run in `path` has made all its steps: by its newest checkpoint, if no evaluation
/// after it was dropped, or by its record, if the deck asks for no checkpoints.
bool is_finished(const session::Job& job, const std::string& path);
/// Collective. The run directory, or the first of DIRECTORY-2, DIRECTORY-3, … that is not finished,
/// when the deck asks for a new run then.
std::string choose_directory(const session::Job& job, comm::World& world);
/// Warns if there is no lock: two runs in one directory would overwrite each other's files.
void warn_unlocked(const record::RunDirectory& directory, Log& log);

/// Rank 0, of a finished run: writes run.h5 if the run was killed before it could. Warns if that
/// fails.
void complete_run_file(const std::string& directory, Log& log);

/// Rank 0, before anything but the directory is created. If a killed save had renamed a checkpoint,
/// restores its name. Throws StorageError if the run had checkpoints and none is there now, unless
/// the deck asks for step 0.
void expect_known_checkpoints(const record::RunDirectory& directory, const session::Job& job);

struct OpenedRecord {
  record::RunRecord record;
  /// What the earlier start dropped after the step from which the run resumes.
  bool owes_validation = false, owes_evaluation = false;
};

/// Rank 0. `resumed_step`: of the checkpoint that the run continues from. Throws UserError when
/// another run's record is in the directory; StorageError.
OpenedRecord open_record(const std::string& directory,
                         const record::RunHeader& header,
                         std::optional<std::int64_t> resumed_step,
                         const session::Job& job,
                         Log& log);

}  // namespace trireme::train
