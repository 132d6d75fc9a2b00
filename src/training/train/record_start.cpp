// SPDX-License-Identifier: Apache-2.0
#include "train/record_start.hpp"

#include <filesystem>

#include <fmt/format.h>

#include "base/error.hpp"
#include "files/path.hpp"

#include "comm/control/together.hpp"

#include "record/checkpoint/checkpoint.hpp"
#include "record/checkpoint/checkpoint_directory.hpp"
#include "record/run/run_file.hpp"
#include "record/run/run_log.hpp"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

/// What in the run directory shows that there were checkpoints, or "".
std::string trace_of_checkpoints(const record::RunDirectory& directory,
                                 const std::string& elsewhere) {
  std::error_code ignored;
  const std::string place = directory.checkpoints(), latest = place + "/latest";
  const std::string none = elsewhere.empty()
                               ? place + " holds none"
                               : fmt::format("neither {} nor {} holds one", place, elsewhere);
  if (fs::is_symlink(place, ignored) && !fs::exists(place, ignored))
    return fmt::format("{} is a link to {}, which does not exist", place,
                       fs::read_symlink(place, ignored).string());
  const std::string log = directory.file(record::run_log_name);
  if (const auto found = record::look_at_log(log); found.last_checkpoint > 0)
    return fmt::format("{} lists checkpoints up to step {}, and {}", log, found.last_checkpoint,
                       none);
  return fs::exists(latest, ignored) ? fmt::format("{} names a checkpoint, and {}", latest, none)
                                     : "";
}

/// Gives what is there of a record another name. Returns what it did, for a sentence.
std::string set_aside(const std::string& directory, const char* why) {
  std::string moves;
  for (const char* name : {record::run_log_name, record::run_file_name})
    if (const std::string path = fmt::format("{}/{}", directory, name); files::exists(path))
      moves += fmt::format("{}{} to {}", moves.empty() ? "" : " and ", path,
                           record::move_aside(path, why));
  return moves;
}

record::RunRecordOptions options_of(const session::Job& job, Log& log) {
  record::RunRecordOptions options;
  options.span_bytes = job.record.span_megabytes << 20U;
  options.warn = [&log](const std::string& text) { log.warning("{}", text); };
  return options;
}

/// A record from step 0. What a run that was killed before its first checkpoint recorded stays
/// under another name, also when it had made all its steps: is_finished() tells those that ended.
record::RunRecord begun(const std::string& directory,
                        const record::RunHeader& header,
                        const record::LogFacts& found,
                        const session::Job& job,
                        Log& log) {
  if (const std::string moves = set_aside(directory, "attempt"); !moves.empty())
    log.warning(
        "no checkpoint found in {}: starting from step 0. Moved the record of the earlier attempt "
        "({} step{}): {}",
        directory, found.last_step.value_or(0), found.last_step == 1 ? "" : "s", moves);
  return record::RunRecord::create(directory, header, options_of(job, log));
}

/// The record continued after `step`. One that is older than the checkpoint keeps its gap; one that
/// was moved away, or of which no line can be read, begins again.
record::RunRecord continued(const std::string& directory,
                            const record::RunHeader& header,
                            std::int64_t step,
                            const record::LogFacts& found,
                            const session::Job& job,
                            Log& log) {
  const std::string path = fmt::format("{}/{}", directory, record::run_log_name);
  if (found.lines == 0) {
    const std::string moves = set_aside(directory, found.exists ? "damaged" : "earlier");
    if (found.exists)
      log.warning("no line of {} can be read: a new record begins with step {}. Moved {}", path,
                  step + 1, moves);
    else if (step > 0 || !moves.empty())  // weights that were imported have no record
      log.warning("{} is not here: a new record begins with step {}{}{}", path, step + 1,
                  moves.empty() ? "" : ". Moved ", moves);
    return record::RunRecord::create(directory, header, options_of(job, log), step);
  }
  if (!found.damaged.empty())
    log.warning("{}: {} damaged and skipped", path, record::lines_text(found.damaged));
  if (const std::int64_t last = found.last_step.value_or(0); last + job.record.every_steps <= step)
    log.warning("{} ends with step {}, before the checkpoint: the rows up to step {} are missing",
                path, last, step);
  return record::RunRecord::resume(directory, header, step, found, options_of(job, log));
}

}  // namespace

bool is_finished(const session::Job& job, const std::string& path) {
  const auto newest = record::newest_checkpoint(path);
  const bool saved = newest && newest->step >= job.run.steps;
  if (!saved && job.checkpoint.regular())
    return false;
  const auto found = record::look_at_log(fmt::format("{}/{}", path, record::run_log_name));
  if (!saved)
    return found.last_step.value_or(0) >= job.run.steps;
  return (job.evaluate.every_steps == 0 || found.dropped_validation != newest->step) &&
         (job.evaluate.sets.empty() || found.dropped_evaluation != newest->step);
}

std::string choose_directory(const session::Job& job, comm::World& world) {
  const std::string first = record::without_end_slashes(job.run.directory);
  std::string path = first;
  comm::on_first_rank(world, [&] {
    if (job.run.when_finished == session::WhenFinished::renew)
      for (int number = 2; is_finished(job, path); ++number) {
        const std::string next = fmt::format("{}-{}", first, number);
        if (!world.lost.empty() && !std::filesystem::exists(next))
          break;  // the run of this job was finished when it lost a rank
        path = next;
      }
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

void complete_run_file(const std::string& directory, Log& log) {
  try {
    if (record::run_file_is_behind(directory))
      for (const std::string& line : record::rebuild_run_file(directory)) log.info("{}", line);
  } catch (const StorageError& problem) {
    log.warning("cannot write {}/{}: {}", directory, record::run_file_name, problem.what());
  }
}

void expect_known_checkpoints(const record::RunDirectory& directory, const session::Job& job) {
  record::restore_replaced(directory.path());
  const std::string& elsewhere = job.checkpoint.directory;
  if (job.run.restart_without_checkpoints || record::newest_checkpoint(directory.path()) ||
      (!elsewhere.empty() && record::newest_checkpoint_in(elsewhere)))
    return;
  const std::string trace = trace_of_checkpoints(directory, elsewhere);
  if (trace.empty())
    return;
  throw StorageError(
      "checkpoints", "resume the run in " + directory.path(),
      fmt::format("{}. If their file system is not mounted or they were moved, bring them back and "
                  "start again. If they are lost, start from step 0 with "
                  "run.restart_without_checkpoints=true, or choose another run.directory",
                  trace));
}

OpenedRecord open_record(const std::string& directory,
                         const record::RunHeader& header,
                         std::optional<std::int64_t> resumed_step,
                         const session::Job& job,
                         Log& log) {
  const record::LogFacts found =
      record::look_at_log(fmt::format("{}/{}", directory, record::run_log_name));
  OpenedRecord opened =
      resumed_step ? OpenedRecord{continued(directory, header, *resumed_step, found, job, log),
                                  found.dropped_validation == resumed_step,
                                  found.dropped_evaluation == resumed_step}
                   : OpenedRecord{begun(directory, header, found, job, log)};
  opened.record.replace_text_file("deck.resolved.yaml", job.resolved_deck, found);
  return opened;
}

}  // namespace trireme::train
