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

#include "h5/handle.hpp"

#include "record/also/also_files.hpp"
#include "record/run/move_aside.hpp"
#include "record/run/run_trial.hpp"

namespace trireme::train {
namespace {

/// A run that was killed before its first checkpoint begins again. What it recorded stays, under
/// another name; the record of a finished run is not touched, and refused by RunFile::create.
void set_aside(const std::string& path, std::int64_t steps, Log& log) {
  const auto last = record::look_at_run_file(path).last_step;
  if (!last || *last >= steps)
    return;
  log.warning("no checkpoint is here, so the run begins anew; the record of its {} steps is now {}",
              *last, record::move_aside(path, "attempt"));
}

/// Continues the record after `step`. One that is older than the checkpoint keeps its gap; one that
/// is damaged or was moved away begins again.
record::RunFile continued(const std::string& path,
                          const record::RunHeader& header,
                          std::int64_t step,
                          const session::Job& job,
                          Log& log) {
  if (!std::filesystem::exists(path)) {
    if (step > 0)  // weights that were imported have no record
      log.warning("{} is not here: a new one begins with step {}", path, step + 1);
    return record::RunFile::create(path, header, {}, step);
  }
  auto [damage, last_there] = record::look_at_run_file(path, step);
  const std::int64_t last = last_there.value_or(step);
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

/// The copies that the deck asks for, of the same rows.
void also_write(record::RunFile& file,
                const std::string& path,
                std::optional<std::int64_t> resumed_step,
                const session::Job& job,
                Log& log) {
  const auto formats = record::also_formats(job.record);
  if (formats.empty())
    return;
  const std::string directory = std::filesystem::path(path).parent_path().string();
  if (!resumed_step)
    for (const record::AlsoFormat format : formats)
      for (const std::string& name : record::also_names(format))
        if (const std::string old = fmt::format("{}/{}", directory, name);
            std::filesystem::exists(old) &&
            !(std::filesystem::is_directory(old) && std::filesystem::is_empty(old)))
          log.warning("{} is of an earlier start, and the run begins anew: it is now {}", old,
                      record::move_aside(old, "attempt"));
  std::vector<std::string> warnings;
  file.also(std::make_unique<record::AlsoFiles>(directory, formats, file.rows(),
                                                resumed_step.value_or(0) + 1, warnings));
  for (const std::string& warning : warnings) log.warning("{}", warning);
}

}  // namespace

record::RunFile open_record(const std::string& path,
                            const record::RunHeader& header,
                            std::optional<std::int64_t> resumed_step,
                            const session::Job& job,
                            Log& log) {
  if (!resumed_step)
    set_aside(path, job.run.steps, log);
  record::RunFile file = resumed_step ? continued(path, header, *resumed_step, job, log)
                                      : record::RunFile::create(path, header);
  also_write(file, path, resumed_step, job, log);
  return file;
}

}  // namespace trireme::train
