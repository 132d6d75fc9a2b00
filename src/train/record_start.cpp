// SPDX-License-Identifier: Apache-2.0
#include "train/record_start.hpp"

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"

#include "h5/handle.hpp"
#include "h5/journal.hpp"

namespace trireme::train {
namespace {

/// Renames to the first free `path`.`why`-N, which is returned.
std::string move_aside(const std::string& path, const char* why) {
  std::string aside;
  for (int number = 1; aside.empty() || std::filesystem::exists(aside); ++number)
    aside = fmt::format("{}.{}-{}", path, why, number);
  std::error_code problem;
  std::filesystem::rename(path, aside, problem);
  if (problem)
    throw StorageError("file system", "rename " + path + " to " + aside, problem.message(),
                       __FILE__, __LINE__);
  std::filesystem::rename(h5::journal_of(path), h5::journal_of(aside), problem);  // if there is one
  return aside;
}

/// A run that was killed before its first checkpoint begins again. What it recorded stays, under
/// another name; the record of a finished run is not touched, and refused by RunFile::create.
void set_aside(const std::string& path, std::int64_t steps, Log& log) {
  const auto last = record::RunFile::last_step(path);
  if (!last || *last >= steps)
    return;
  log.warning("no checkpoint is here, so the run begins anew; the record of its {} steps is now {}",
              *last, move_aside(path, "attempt"));
}

/// Continues the record after `step`. One that is older than the checkpoint keeps its gap; one that
/// is damaged or was moved away begins again.
record::RunFile continued(const std::string& path,
                          const record::RunHeader& header,
                          std::int64_t step,
                          const Job& job,
                          Log& log) {
  if (!std::filesystem::exists(path)) {
    log.warning("{} is not here: a new one begins with step {}", path, step + 1);
    return record::RunFile::create(path, header, {}, step);
  }
  std::string damage = record::RunFile::damage(path);
  std::optional<record::RunFile> file;
  std::int64_t last = step;
  try {
    if (damage.empty()) {
      last = record::RunFile::last_step(path).value_or(step);
      file.emplace(record::RunFile::resume(path, header, step));
    }
  } catch (const h5::DamagedError& error) {  // in what is looked at only when rows are cut
    damage = error.what();
  }
  if (!file) {
    log.warning(
        "{} is beyond repair: {}. IT IS NOW {}, and a new record begins with step {}; the "
        "rows up to step {} are in the old one, as far as it can be read",
        path, damage, move_aside(path, "damaged"), step + 1, step);
    return record::RunFile::create(path, header, {}, step);
  }
  for (const std::string& warning : file->warnings()) log.warning("{}: {}", path, warning);
  if (last + job.record.every_steps <= step)
    log.warning("{} ends with step {}, before the checkpoint: the rows up to step {} are missing",
                path, last, step);
  return *std::move(file);
}

}  // namespace

record::RunFile open_record(const std::string& path,
                            const record::RunHeader& header,
                            std::optional<std::int64_t> resumed_step,
                            const Job& job,
                            Log& log) {
  if (resumed_step)
    return continued(path, header, *resumed_step, job, log);
  set_aside(path, job.run.steps, log);
  return record::RunFile::create(path, header);
}

}  // namespace trireme::train
