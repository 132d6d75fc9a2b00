// SPDX-License-Identifier: Apache-2.0
#include "record/checkpoint/checkpoint_directory.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iomanip>
#include <numeric>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "files/descriptor.hpp"
#include "files/output_file.hpp"
#include "files/path.hpp"

#include "record/checkpoint/manifest.hpp"

namespace trireme::record {
namespace {

namespace fs = std::filesystem;

// Only these names are ever removed: step-00000500 with one of these suffixes, and latest.tmp.
constexpr const char* temporary_suffix = ".tmp";        ///< being written
constexpr const char* replaced_suffix = ".tmp.old";     ///< being replaced by a new one of its step
constexpr const char* removed_suffix = ".tmp.removed";  ///< being removed
constexpr const char* latest_file = "latest";

void check(const std::error_code& problem, const std::string& what) {
  if (problem)
    throw StorageError("file system", what, problem.message());
}

std::string not_removed(const fs::path& path, const std::error_code& problem) {
  return fmt::format("cannot remove {}: {}. The run tries again at its next checkpoint",
                     path.string(), problem.message());
}

/// Whether `name` is a checkpoint_name() and `suffix`, as step-00000500.tmp but not step-5.tmp.
bool is_ours(const std::string& name, std::string_view suffix) {
  if (!name.ends_with(suffix))
    return false;
  const std::string stem = name.substr(0, name.size() - suffix.size());
  const std::int64_t step = step_of(stem);
  return step >= 0 && stem == checkpoint_name(step);
}

bool is_leftover(const std::string& name) {
  return name == latest_file + std::string(temporary_suffix) ||
         std::ranges::any_of(std::array{temporary_suffix, replaced_suffix, removed_suffix},
                             [&](const char* suffix) { return is_ours(name, suffix); });
}

/// Empty if the directory does not exist. Throws if it cannot be read, because a run whose
/// checkpoints seem to be missing starts from step 0.
std::vector<fs::path> entries_of(const std::string& directory) {
  std::error_code problem;
  std::vector<fs::path> found;
  for (fs::directory_iterator at(directory, problem); !problem && at != fs::directory_iterator();
       at.increment(problem))
    found.push_back(at->path());
  if (problem != std::errc::no_such_file_or_directory)
    check(problem, "list " + directory);
  return found;
}

/// The first word of a small text file, or "" if it cannot be read.
std::string first_word(const std::string& path) {
  std::string word;
  std::ifstream(path) >> std::setw(64) >> word;
  return word;
}

/// Absolute path; symbolic links are resolved as far as the path exists.
fs::path resolved(const fs::path& path) {
  std::error_code problem;
  const fs::path found = fs::weakly_canonical(fs::absolute(path, problem), problem);
  return found.has_filename() ? found : found.parent_path();
}

void point_latest_at(const std::string& checkpoints, const std::string& name) {
  files::replace_file(checkpoints + "/" + latest_file, name + "\n");
}

/// Whether checkpoint_name() gives the name; false for a user's copy such as step-500.
bool has_our_name(const CheckpointPlace& place) {
  return is_ours(fs::path(place.directory).filename().string(), "");
}

/// Sorted by step. Of several with one step, the one that has_our_name() is last, for resuming.
std::vector<CheckpointPlace> places_in(const std::string& checkpoints) {
  std::vector<CheckpointPlace> places;
  for (const fs::path& entry : entries_of(checkpoints)) {
    std::error_code problem;
    const std::int64_t step = step_of(entry.filename().string());
    if (fs::is_directory(entry, problem) && step >= 0)
      places.push_back({entry.string(), step});
    else if (problem != std::errc::no_such_file_or_directory)
      check(problem, "look at " + entry.string());
  }
  std::ranges::sort(places, {}, [](const CheckpointPlace& place) {
    return std::pair(place.step, has_our_name(place));
  });
  return places;
}

FoundCheckpoint look_at(CheckpointPlace place) {
  FoundCheckpoint one;
  static_cast<CheckpointPlace&>(one) = std::move(place);
  try {
    const Manifest manifest = read_manifest(one.directory);
    one.milestone = find_fact(manifest.facts.more, milestone_fact) != nullptr;
    one.bytes =
        std::accumulate(manifest.file_bytes.begin(), manifest.file_bytes.end(), std::int64_t{0});
    one.ranks = manifest.ranks();
    one.date_and_time = manifest.date_and_time;
    one.problem = name_problem(one.directory, manifest.facts.step);
    if (one.problem.empty())
      one.problem = missing_files(one.directory, manifest);
    one.whole = one.problem.empty();
  } catch (const UserError& error) {
    one.problem = error.findings().front().text;
  } catch (const StorageError& error) {  // it may become readable later
    one.problem = error.what();
    one.unreadable = true;
  }
  return one;
}

}  // namespace

std::string checkpoints_of(const std::string& run_directory) {
  return run_directory + "/checkpoints";
}

void expect_place_of_checkpoints(const std::string& run_directory, const std::string& directory) {
  const auto refuse = [&](const std::string& why) {
    throw UserError({{{}, "checkpoint.directory", why}});
  };
  const std::string link = checkpoints_of(run_directory);
  const fs::path target = resolved(directory);
  if (target == resolved(run_directory))
    refuse(fmt::format("this is run.directory itself. Remove the key: checkpoints are then in {}",
                       link));
  std::error_code problem;
  const fs::file_status there = fs::symlink_status(link, problem);
  if (fs::is_directory(there) && resolved(link) != target && !entries_of(link).empty())
    refuse(fmt::format("{} is not empty: move what is in it into {}, or remove the key", link,
                       directory));
  if (fs::exists(there) && !fs::is_directory(there) &&
      resolved(fs::path(run_directory) / fs::read_symlink(link, problem)) != target)
    refuse(fmt::format("{} does not lead to {}: remove it, or remove the key", link, directory));
  if (!fs::is_directory(directory, problem))
    return;  // RunDirectory creates or refuses it
  std::string other;
  for (const fs::path& path : entries_of(directory)) {
    const std::string name = path.filename().string();
    const bool ours = name == latest_file ? step_of(first_word(path.string())) >= 0
                      : name == "lock"    ? first_word(path.string()) == "process"
                                          : step_of(name) >= 0 && fs::exists(path / manifest_file);
    if (ours)
      return;
    if (!is_leftover(name) && name != "lock")
      other = name;
  }
  if (!other.empty())
    refuse(
        fmt::format("{} holds files that are not checkpoints of trireme, such as {}. "
                    "Name a new or empty directory, for example {}/checkpoints",
                    directory, other, directory));
}

void link_checkpoints(const std::string& run_directory, const std::string& directory) {
  const std::string link = checkpoints_of(run_directory);
  std::error_code problem;
  const fs::file_status there = fs::symlink_status(link, problem);
  if (fs::is_directory(there) ? resolved(link) == resolved(directory) : fs::exists(there))
    return;
  fs::remove(link, problem);  // only if it is an empty directory
  check(problem, "remove " + link);
  fs::create_directory_symlink(resolved(directory), link, problem);
  check(problem, "make the link " + link);
  files::sync_directory(run_directory);
}

std::string checkpoint_name(std::int64_t step) {
  return fmt::format("step-{:08}", step);
}

std::int64_t step_of(const std::string& name) {
  static constexpr std::string_view prefix = "step-";
  if (name.size() <= prefix.size() || name.size() > prefix.size() + 18 ||
      !name.starts_with(prefix) ||
      name.find_first_not_of("0123456789", prefix.size()) != std::string::npos)
    return -1;
  return std::stoll(name.substr(prefix.size()));
}

std::string temporary_name(std::int64_t step) {
  return checkpoint_name(step) + temporary_suffix;
}

void restore_replaced(const std::string& run_directory) {
  const std::string checkpoints = checkpoints_of(run_directory);
  for (const fs::path& old : entries_of(checkpoints)) {
    const std::string name = old.filename().string();
    if (!is_ours(name, replaced_suffix))
      continue;
    const auto whole =
        old.parent_path() / name.substr(0, name.size() - std::strlen(replaced_suffix));
    if (!files::exists(whole))
      files::rename(old.string(), whole.string());
  }
}

std::vector<std::string> prepare_temporary(const std::string& run_directory, std::int64_t step) {
  const std::string checkpoints = checkpoints_of(run_directory);
  files::make_directories(checkpoints);
  restore_replaced(run_directory);
  std::vector<std::string> warnings;
  std::error_code problem;
  const std::string temporary = checkpoints + "/" + temporary_name(step);
  for (const fs::path& path : entries_of(checkpoints))
    if (is_leftover(path.filename().string())) {
      fs::remove_all(path, problem);
      if (path == temporary)
        check(problem, "remove " + temporary);
      if (problem)
        warnings.push_back(not_removed(path, problem));
    }
  fs::create_directory(temporary, problem);
  check(problem, "create directory " + temporary);
  return warnings;
}

void remove_temporary(const std::string& run_directory, std::int64_t step) noexcept {
  std::error_code ignored;  // harmless: the next save tries again
  fs::remove_all(checkpoints_of(run_directory) + "/" + temporary_name(step), ignored);
}

std::string commit_temporary(const std::string& run_directory, std::int64_t step) {
  const std::string checkpoints = checkpoints_of(run_directory);
  const std::string temporary = checkpoints + "/" + temporary_name(step);
  const std::string whole = checkpoints + "/" + checkpoint_name(step);
  files::sync_directory(temporary);
  if (!fs::exists(whole)) {
    files::rename(temporary, whole);
  } else if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, whole.c_str(), RENAME_EXCHANGE) ==
             0) {
    remove_temporary(run_directory, step);
  } else {  // no exchange of names: restore_replaced() repairs an interruption
    const std::string replaced = whole + replaced_suffix;
    files::rename(whole, replaced);
    files::rename(temporary, whole);
    std::error_code ignored;
    fs::remove_all(replaced, ignored);
  }
  files::sync_directory(checkpoints);
  try {
    point_latest_at(checkpoints, checkpoint_name(step));
  } catch (const StorageError& problem) {  // only a hint; the checkpoint is complete
    return problem.what();
  }
  return "";
}

std::vector<FoundCheckpoint> list_checkpoints(const std::string& run_directory) {
  std::vector<FoundCheckpoint> found;
  for (CheckpointPlace& place : places_in(checkpoints_of(run_directory))) {
    FoundCheckpoint one = look_at(std::move(place));
    // A running job may have removed it in the meantime.
    if (std::error_code ignored; one.whole || fs::exists(one.directory, ignored))
      found.push_back(std::move(one));
  }
  return found;
}

std::optional<CheckpointPlace> newest_checkpoint(const std::string& run_directory) {
  return newest_checkpoint_in(checkpoints_of(run_directory));
}

std::optional<CheckpointPlace> newest_checkpoint_in(const std::string& checkpoints) {
  auto all = places_in(checkpoints);
  if (all.empty())
    return std::nullopt;
  return std::move(all.back());
}

std::string doubt_latest(const std::string& run_directory, const std::string& newest) {
  const std::string path = checkpoints_of(run_directory) + "/" + latest_file;
  std::string text;
  try {
    if (!files::exists(path))
      return "";
    text = files::read_whole(path);
  } catch (const StorageError& problem) {
    return problem.what();
  }
  const std::string name = fs::path(newest).filename().string();
  if (text == name + "\n")
    return "";
  return fmt::format("{} names {:?}, but the newest checkpoint here is {}", path,
                     text.substr(0, std::min(text.find('\n'), 2 * name.size())), name);
}

std::vector<std::string> prune(const std::string& run_directory,
                               std::int64_t newest,
                               Retention retention) {
  if (retention.keep == 0)
    return {};
  auto places = places_in(checkpoints_of(run_directory));
  std::erase_if(places, std::not_fn(has_our_name));
  if (std::ssize(places) <= retention.keep)
    return {};                      // without reading manifests, which is slow
  std::vector<std::string> doomed;  // newest first
  std::int64_t whole = 0;
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    if (whole >= retention.keep && retention.milestone(place->step))
      continue;                   // not read: there may be many
    if (place->step == newest) {  // not read: it has just been written
      ++whole;
      continue;
    }
    const FoundCheckpoint one = look_at(std::move(*place));
    whole += one.whole ? 1 : 0;
    if (one.whole && whole > retention.keep && !one.milestone)
      doomed.push_back(one.directory);
  }
  std::vector<std::string> warnings;
  for (auto directory = doomed.rbegin(); directory != doomed.rend(); ++directory) {
    // Rename it first, so that a partly removed checkpoint is never considered complete.
    const std::string aside = *directory + removed_suffix;
    std::error_code problem;
    fs::rename(*directory, aside, problem);
    if (problem)
      warnings.push_back(not_removed(*directory, problem));
    else if (fs::remove_all(aside, problem); problem)
      warnings.push_back(not_removed(aside, problem));
  }
  return warnings;
}

std::string name_problem(const std::string& directory, std::int64_t step) {
  const fs::path path(directory);
  const std::string name = path.filename().string();
  const std::int64_t named = step_of(name);
  if (named < 0 || named == step)
    return "";
  const std::string own = checkpoint_name(step);
  return fmt::format(
      "this directory is named {}, and its manifest is of step {}: it was renamed or copied; {}",
      name, step,
      fs::exists(path.parent_path() / own) ? "move it away, " + own + " is there as well"
                                           : "give it the name " + own + " again");
}

std::string way_out(const std::string& directory) {
  const fs::path path(directory);
  const std::int64_t step = step_of(path.filename().string());
  const std::string run_directory = path.parent_path().parent_path().string();
  const std::string name = path.filename().string();
  std::string older;
  for (const FoundCheckpoint& one : list_checkpoints(run_directory))
    if (one.whole && one.step < step)
      older = fs::path(one.directory).filename().string();
  if (older.empty())
    return fmt::format(
        "no older whole checkpoint is left; choose another run.directory, or remove {} and start "
        "from step 0 with run.restart_without_checkpoints=true",
        name);
  return fmt::format("remove {} to resume from {}, which is whole", name, older);
}

}  // namespace trireme::record
