// SPDX-License-Identifier: Apache-2.0
#include "train/record_start.hpp"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.hpp"

#include "comm/control/together.hpp"

#include "h5/handle.hpp"
#include "h5/journal.hpp"
#include "record/also/also_files.hpp"
#include "record/checkpoint/checkpoint.hpp"
#include "record/checkpoint/checkpoint_directory.hpp"
#include "record/run/move_aside.hpp"
#include "record/run/run_trial.hpp"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

/// What in the run directory shows that there were checkpoints, or "".
std::string trace_of_checkpoints(const record::RunDirectory& directory) {
  std::error_code ignored;
  const std::string place = directory.checkpoints(), latest = place + "/latest";
  if (fs::is_symlink(place, ignored) && !fs::exists(place, ignored))
    return fmt::format("{} is a link to {}, which does not exist", place,
                       fs::read_symlink(place, ignored).string());
  if (const auto found = record::look_at_run_file(directory.run_file()); found.last_checkpoint > 0)
    return fmt::format("{} lists checkpoints up to step {}, and {} holds none",
                       directory.run_file(), found.last_checkpoint, place);
  return fs::exists(latest, ignored)
             ? fmt::format("{} names a checkpoint, and {} holds none", latest, place)
             : "";
}

/// A run that was killed before its first checkpoint begins again. What it recorded stays, under
/// another name; the record of a finished run is not touched, and refused by RunFile::create.
void set_aside(const std::string& path, std::int64_t steps, Log& log) {
  const auto last = record::look_at_run_file(path).last_step;
  if (!last || *last >= steps)
    return;
  log.warning(
      "no checkpoint found in {}: starting from step 0. The record of the earlier attempt ({} "
      "step{}) was moved to {}",
      fs::path(path).parent_path().string(), *last, *last == 1 ? "" : "s",
      record::move_aside(path, "attempt"));
}

/// Continues the record after `step`. One that is older than the checkpoint keeps its gap; one that
/// is damaged or was moved away begins again.
record::RunFile continued(const std::string& path,
                          const record::RunHeader& header,
                          std::int64_t step,
                          const session::Job& job,
                          Log& log) {
  if (!fs::exists(path)) {
    if (step > 0)  // weights that were imported have no record
      log.warning("{} is not here: a new one begins with step {}", path, step + 1);
    return record::RunFile::create(path, header, {}, step);
  }
  const record::RunFindings found = record::look_at_run_file(path, step);
  const std::int64_t last = found.last_step.value_or(step);
  std::string damage = found.damage;
  std::optional<record::RunFile> file;
  try {
    if (damage.empty()) {
      file.emplace(record::RunFile::resume(path, header, step));
    }
  } catch (const h5::DamagedError& error) {  // in what is read only when rows are cut
    damage = error.what();
  }
  if (!file) {
    log.warning(
        "{} is beyond repair: {}. IT IS NOW {}, and a new record begins with step {}; the "
        "rows up to step {} are in the old one, as far as it can be read",
        path, damage, record::move_aside(path, "damaged"), step + 1, step);
    return record::RunFile::create(path, header, {}, step);
  }
  for (const std::string& warning : file->warnings()) log.warning("{}: {}", path, warning);
  if (last + job.record.every_steps <= step)
    log.warning("{} ends with step {}, before the checkpoint: the rows up to step {} are missing",
                path, last, step);
  return *std::move(file);
}

/// Writes the same rows as JSON lines, if the deck asks for it.
void also_write(record::RunFile& file,
                const std::string& path,
                std::optional<std::int64_t> resumed_step,
                const session::Job& job,
                Log& log) {
  if (!job.record.json_lines())
    return;
  const std::string directory = fs::path(path).parent_path().string();
  if (!resumed_step)
    for (const char* name : record::json_lines_names)
      if (const std::string old = fmt::format("{}/{}", directory, name); fs::is_regular_file(old))
        log.warning("{} is of an earlier start: it is now {}", old,
                    record::move_aside(old, "attempt"));
  std::vector<std::string> warnings;
  file.also(std::make_unique<record::AlsoFiles>(directory, file.rows(),
                                                resumed_step.value_or(0) + 1, warnings));
  for (const std::string& warning : warnings) log.warning("{}", warning);
}

/// The journal of a record that was moved away without it completes that record.
void keep_journal_of_moved(const std::string& path, Log& log) {
  const std::string journal = h5::journal_of(path);
  if (fs::exists(fs::symlink_status(path)) || !fs::exists(fs::symlink_status(journal)))
    return;
  log.warning(
      "{} was moved or removed, and the last changes to it are in {}. The journal was moved to {}. "
      "To read the moved record, give this file the name RECORD.journal, next to RECORD",
      path, journal, record::move_aside(journal, "moved"));
}

}  // namespace

bool is_finished(const session::Job& job, const std::string& path) {
  if (const auto newest = record::newest_checkpoint(path); newest && newest->step >= job.run.steps)
    return true;
  return !job.checkpoint.regular() &&
         record::look_at_run_file(path + "/run.h5").last_step.value_or(0) >= job.run.steps;
}

std::string choose_directory(const session::Job& job, comm::World& world) {
  std::string path = job.run.directory;
  comm::on_first_rank(world, [&] {
    if (job.run.when_finished == session::WhenFinished::renew)
      for (int number = 2; is_finished(job, path); ++number)
        path = fmt::format("{}-{}", job.run.directory, number);
  });
  return world.broadcast(std::move(path), 0);
}

void warn_unlocked(const record::RunDirectory& directory, Log& log) {
  if (!directory.locked())
    log.warning(
        "{} cannot be locked on this file system: do not start another run in it before this one "
        "has ended",
        directory.path());
}

void expect_readable(const std::string& path, bool whole, Log& log) {
  const auto found = record::look_at_run_file(path);
  if (found.damage.empty())
    return;
  if (whole)
    throw StorageError("record", "read " + path,
                       fmt::format("{}. Another program may have written to the file during the "
                                   "run. The checkpoints are not affected",
                                   found.damage),
                       __FILE__, __LINE__);
  log.warning(
      "cannot read {} ({}): another program may have written to it during the run. The next start "
      "moves it aside and begins a new record",
      path, found.damage);
}

void expect_known_checkpoints(const record::RunDirectory& directory, const session::Job& job) {
  record::restore_replaced(directory.path());
  const std::string& elsewhere = job.checkpoint.directory;
  if (job.run.restart_without_checkpoints || record::newest_checkpoint(directory.path()) ||
      (!elsewhere.empty() && record::newest_checkpoint_in(elsewhere)))
    return;
  const std::string trace = trace_of_checkpoints(directory);
  if (trace.empty())
    return;
  throw StorageError(
      "checkpoints", "resume the run in " + directory.path(),
      fmt::format("{}. If their file system is not mounted or they were moved, bring them back and "
                  "start again. If they are lost, start from step 0 with "
                  "run.restart_without_checkpoints=true, or choose another run.directory",
                  trace),
      __FILE__, __LINE__);
}

record::RunFile open_record(const std::string& path,
                            const record::RunHeader& header,
                            std::optional<std::int64_t> resumed_step,
                            const session::Job& job,
                            Log& log) {
  keep_journal_of_moved(path, log);
  if (!resumed_step)
    set_aside(path, job.run.steps, log);
  record::RunFile file = resumed_step ? continued(path, header, *resumed_step, job, log)
                                      : record::RunFile::create(path, header);
  also_write(file, path, resumed_step, job, log);
  return file;
}

}  // namespace trireme::train
