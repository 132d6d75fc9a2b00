// SPDX-License-Identifier: Apache-2.0
#include "record/run/run_directory.hpp"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/input_file.hpp"

#include "h5/file.hpp"

#include "comm/control/together.hpp"

namespace trireme::record {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& what, int reason) {
  throw StorageError("file system", what, std::strerror(reason), __FILE__, __LINE__);
}

void refuse_files_in_the_way(const std::string& path, const std::string& key) {
  std::error_code problem;
  for (fs::path part = path; !part.empty(); part = part.parent_path()) {
    const fs::file_status status = fs::status(part, problem);
    if (fs::exists(status) && !fs::is_directory(status))
      throw UserError(Place{part.string()},
                      fmt::format("a file is in the way of {} {}", key, path));
    if (part == part.parent_path())
      break;
  }
}

}  // namespace

RunDirectory::RunDirectory(std::string path, comm::World& world, std::string key)
    : path_(std::move(path)), key_(std::move(key)) {
  while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
  comm::on_first_rank(world, [&] { create_and_lock(world.host()); });
  locked_ = !world.broadcast(locked_ ? "locked" : "", 0).empty();
}

void RunDirectory::create_and_lock(const std::string& host) {
  refuse_files_in_the_way(path_, key_);
  h5::make_directories(path_);
  place_ = ::open(path_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);

  FileLock lock(file("lock"), "write into " + key_ + ": ");
  const auto taken = lock.take_alone();
  if (taken == FileLock::Taken::by_another)
    throw UserError(Place{path_},
                    fmt::format("{} is in use by {}: wait for it, stop it, or choose another "
                                "directory",
                                key_, lock.holder("another run")));
  lock.sign(host);
  locked_ = taken == FileLock::Taken::yes;
  lock_.emplace(std::move(lock));
}

std::string RunDirectory::stored_id() const {
  const std::string name = file("run.id");
  if (!fs::exists(name))  // throws where that cannot be read: the directory would get a new name
    return "";
  std::string text = read_whole(name);
  if (text.empty())
    return "";
  if (text.back() == '\n')
    text.pop_back();
  if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != std::string::npos)
    throw UserError(Place{name},
                    fmt::format("this does not name a run: remove it, and the run takes the name "
                                "of its checkpoint in {}",
                                path_));
  return text;
}

void RunDirectory::set_id(const std::string& id) {
  id_ = id;
  if (const std::string name = file("run.id"); !fs::exists(name) || stored_id() != id) {
    h5::write_text_file(name + ".tmp", id + "\n");
    if (std::rename((name + ".tmp").c_str(), name.c_str()) != 0)
      fail("rename " + name + ".tmp to " + name, errno);
    h5::sync_directory(path_);
  }
}

std::string new_run_id() {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != static_cast<ssize_t>(sizeof number))
    fail("getrandom", errno);
  return fmt::format("{:016x}", number);
}

void RunDirectory::expect_in_place() const {
  struct stat held {
  }, found{};
  if (place_ < 0 || ::fstat(place_, &held) != 0)
    return;
  const bool there = ::stat(path_.c_str(), &found) == 0;
  if (there && held.st_dev == found.st_dev && held.st_ino == found.st_ino)
    return;
  const std::string link = fmt::format("/proc/self/fd/{}", place_);
  std::error_code ignored;
  const std::string now = fs::read_symlink(link, ignored).string();
  throw StorageError(
      "file system", "find " + key_ + " " + path_,
      held.st_nlink == 0
          ? "it was removed while the run used it, with all that the run wrote into it"
          : fmt::format("it was moved away while the run used it{}; what the run wrote is in {}",
                        there ? ", and another one is in its place" : "",
                        now.empty() ? "an unknown place" : now),
      __FILE__, __LINE__);
}

RunDirectory::~RunDirectory() {
  if (place_ >= 0)
    ::close(place_);
}

}  // namespace trireme::record
