// SPDX-License-Identifier: Apache-2.0
#include "record/run/run_directory.hpp"

#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/error.hpp"
#include "files/output_file.hpp"
#include "files/path.hpp"

#include "comm/control/together.hpp"

#include "record/checkpoint/checkpoint.hpp"
#include "record/run/run_log.hpp"
#include "record/run/run_requests.hpp"

namespace trireme::record {
namespace {

namespace fs = std::filesystem;

/// Interval between checks for an action of another host or its file system.
constexpr std::chrono::milliseconds between_tries{100};

void refuse_what_is_in_the_way(const std::string& path, const std::string& key) {
  std::error_code problem;
  for (fs::path part = path; !part.empty(); part = part.parent_path()) {
    const fs::file_status status = fs::status(part, problem);
    if (fs::exists(status) && !fs::is_directory(status))
      throw UserError(Place{part.string()},
                      fmt::format("a file is in the way of {} {}", key, path));
    if (!fs::exists(status) && fs::is_symlink(part, problem))
      throw StorageError(
          "file system", fmt::format("create {} {}", key, path),
          fmt::format("{} is a link to {}, which does not exist. If its file system is not "
                      "mounted, mount it and start again. Otherwise remove the link",
                      part.string(), fs::read_symlink(part, problem).string()));
    if (part == part.parent_path())
      break;
  }
}

files::Descriptor opened(const std::string& directory) {
  try {
    return {directory, O_RDONLY | O_DIRECTORY};
  } catch (const StorageError&) {  // it may be writable but not readable
    return {directory, O_PATH | O_DIRECTORY};
  }
}

/// The file's content, or "" if it does not exist. Throws StorageError if it cannot be read.
std::string content_of(const std::string& file) {
  return files::exists(file) ? files::read_whole(file) : "";
}

/// Whether the process named in `holder`, the line of a held lock, has or may have ended. The state
/// of processes on other hosts is unknown, so they may have ended.
bool may_have_ended(const std::string& holder, const std::string& host) {
  constexpr std::string_view before = "process ";
  int process = 0;
  if (!holder.starts_with(before) ||
      std::from_chars(&holder[before.size()], holder.data() + holder.size(), process).ec !=
          std::errc{})
    return false;
  return !holder.ends_with(" on " + host) || (::kill(process, 0) != 0 && errno == ESRCH);
}

constexpr const char* owner_file = "run.id";

/// The content of `run.id`; empty if the file is missing, or empty after a crash.
struct Owner {
  std::string id, path;
  bool operator==(const Owner&) const = default;
};

Owner read_owner(const std::string& directory) {
  const std::string name = fmt::format("{}/{}", directory, owner_file);
  if (!fs::exists(name))  // throws on errors: the directory must not get a new name
    return {};
  const std::string text = files::read_whole(name);
  const std::size_t end = text.find('\n');
  Owner owner{text.substr(0, end), end == std::string::npos ? "" : text.substr(end + 1)};
  if (owner.path.ends_with('\n'))
    owner.path.pop_back();
  if (!text.empty() && (owner.id.size() != 16 ||
                        owner.id.find_first_not_of("0123456789abcdef") != std::string::npos))
    throw UserError(Place{name},
                    fmt::format("the file does not contain the name of a run. Remove it to use the "
                                "name in the checkpoint of {}",
                                directory));
  return owner;
}

}  // namespace

RunDirectory::RunDirectory(std::string path,
                           comm::World& world,
                           std::string key,
                           const LockWait& wait)
    : path_(without_end_slashes(std::move(path))), key_(std::move(key)), host_(world.host()) {
  comm::on_first_rank(world, [&] { create_and_lock(world.lost.empty(), wait); });
  locked_ = !world.broadcast(locked_ ? "locked" : "", 0).empty();
  expect_shared(world);
}

void RunDirectory::expect_shared(comm::World& world) const {
  std::error_code ignored;
  const std::string here = fs::absolute(path_, ignored).string();
  const auto [holder, there] =
      comm::from_first_rank(world, [&] { return std::pair(lock_->holder(""), here); });
  comm::together(world, [&] {
    // A host may cache for this long that the file does not exist (NFS: acdirmax).
    const std::chrono::seconds memory(holder.ends_with(" on " + host_) ? 0 : 60);
    const auto until = std::chrono::steady_clock::now() + memory;
    for (;; std::this_thread::sleep_for(between_tries)) {
      const bool last = std::chrono::steady_clock::now() >= until;
      try {
        if (content_of(file("lock")) == holder + '\n')
          return;
      } catch (const StorageError&) {
        if (last)
          throw;
        continue;
      }
      if (last)
        throw StorageError(
            "file system", fmt::format("find {} {}", key_, path_),
            here == there
                ? "it is not the directory that rank 0 uses. Choose one that all hosts share"
                : fmt::format("it is {} for this rank and {} for rank 0. Start all ranks in the "
                              "same working directory, or give an absolute path",
                              here, there));
    }
  });
}

files::Taken RunDirectory::take(files::FileLock& lock, const LockWait& wait) const {
  const auto until = std::chrono::steady_clock::now() + wait.timeout;
  for (bool waits = false;;) {
    const auto taken = place_.lock(true) == files::Taken::by_another ? files::Taken::by_another
                                                                     : lock.take_alone();
    if (taken != files::Taken::by_another || std::chrono::steady_clock::now() >= until)
      return taken;
    const std::string holder = lock.holder("");
    if (!may_have_ended(holder, host_))
      return taken;
    if (!std::exchange(waits, true))
      wait.say(fmt::format(
          "waiting for {} {}, for {:.0f} s at most: {} has its lock. If that process or its host "
          "was lost, the file system may still keep the lock for a while",
          key_, path_, wait.timeout.count(), holder));
    std::this_thread::sleep_for(between_tries);
  }
}

void RunDirectory::create_and_lock(bool first_start, const LockWait& wait) {
  refuse_what_is_in_the_way(path_, key_);
  files::make_directories(path_);
  place_ = opened(path_);
  files::FileLock lock(file("lock"), "write into " + key_ + ": ");
  const auto taken = take(lock, wait);
  if (taken == files::Taken::by_another)
    throw UserError(Place{path_},
                    fmt::format("{} is in use by {}: wait for it, stop it, or choose another "
                                "directory",
                                key_, lock.holder("another run")));
  if (first_start && key_ == run_key)  // else they are for this run, which lost a rank
    remove_requests(path_);
  lock.sign(host_);
  locked_ = taken == files::Taken::yes;
  lock_.emplace(std::move(lock));
}

std::string RunDirectory::stored_id() const {
  return read_owner(path_).id;
}

void RunDirectory::set_id(const std::string& id) {
  id_ = id;
  const Owner owner{id, fs::canonical(path_).string()};
  if (read_owner(path_) != owner)
    files::replace_file(file(owner_file), fmt::format("{}\n{}\n", owner.id, owner.path));
}

std::string without_end_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

void expect_own_checkpoints(const std::string& directory, const std::string& elsewhere) {
  const std::string link = directory + "/checkpoints";
  std::error_code ignored;
  const bool linked = fs::is_symlink(link, ignored);
  if (!linked && (elsewhere.empty() || fs::equivalent(link, elsewhere, ignored)))
    return;
  const std::string& place = linked ? link : elsewhere;
  if (!newest_checkpoint_in(place))
    return;
  const Owner owner = read_owner(directory);
  if (owner.id.empty() && !fs::exists(fmt::format("{}/{}", directory, run_log_name)))
    throw UserError(Place{directory},
                    fmt::format("no run was here, and {} holds another run's checkpoints: name the "
                                "run.directory of that run, or {}",
                                place,
                                linked ? "remove this link, if the run is to begin"
                                       : "another checkpoint.directory"));
  if (!owner.path.empty() && fs::equivalent(owner.path + "/checkpoints", place, ignored) &&
      !fs::equivalent(owner.path, directory, ignored) && read_owner(owner.path).id == owner.id)
    throw UserError(Place{directory},
                    fmt::format("this is a copy of {}, and both would write into {}. Copy the "
                                "checkpoints as well: replace the link {} by a copy of what it "
                                "leads to, and remove checkpoint.directory or name another",
                                owner.path, place, link));
}

std::string new_run_id() {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != static_cast<ssize_t>(sizeof number))
    files::fail("getrandom", errno);
  return fmt::format("{:016x}", number);
}

void RunDirectory::expect_in_place() {
  struct stat held {};
  if (::fstat(place_.number(), &held) == 0 && !place_.in_place()) {
    const bool removed = held.st_nlink == 0;
    std::error_code ignored;
    const std::string now =
        fs::read_symlink(fmt::format("/proc/self/fd/{}", place_.number()), ignored).string();
    throw StorageError(
        "file system", "find " + key_ + " " + path_,
        removed ? "it was removed while the run used it, with all that the run wrote into it"
                : fmt::format("it was moved away while the run used it{}; what the run wrote is "
                              "in {}",
                              fs::exists(path_, ignored) ? ", and another one is in its place" : "",
                              now.empty() ? "an unknown place" : now));
  }
  if (!lock_->in_place()) {
    files::FileLock lock(file("lock"), "write into " + key_ + ": ");
    if (lock.take_alone() == files::Taken::by_another)
      throw StorageError("file system", "keep the lock " + file("lock"),
                         "it was removed while the run used it, and " + lock.holder("another run") +
                             " has taken it. Stop one of the two runs, and start this one again");
    lock.sign(host_);
    lock_.emplace(std::move(lock));
  }
  lock_->touch();
}

std::string move_aside(const std::string& path, const char* why) {
  std::string aside;
  for (int number = 1; aside.empty() || files::exists(aside); ++number)
    aside = fmt::format("{}.{}-{}", path, why, number);
  files::rename(path, aside);
  return aside;
}

}  // namespace trireme::record
