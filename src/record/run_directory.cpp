// SPDX-License-Identifier: Apache-2.0
#include "record/run_directory.hpp"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/input_file.hpp"

#include "h5/file.hpp"

#include "comm/together.hpp"

namespace trireme::record {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& what, int reason) {
  throw StorageError("file system", what, std::strerror(reason), __FILE__, __LINE__);
}

std::string text_of(int file) {
  char text[256];
  const auto got = ::pread(file, text, sizeof text, 0);
  std::string holder(text, got > 0 ? static_cast<std::size_t>(got) : 0);
  while (!holder.empty() && holder.back() == '\n') holder.pop_back();
  return holder.empty() ? "another run" : holder;
}

void refuse_files_in_the_way(const std::string& path, const std::string& key) {
  std::error_code problem;
  for (fs::path part = path; !part.empty(); part = part.parent_path()) {
    if (fs::exists(part, problem) && !fs::is_directory(part, problem))
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

  const std::string name = file("lock");
  lock_ = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0)
    fail("write into " + key_ + ": open " + name, errno);
  locked_ = ::flock(lock_, LOCK_EX | LOCK_NB) == 0;
  if (!locked_ && errno == EWOULDBLOCK) {
    const std::string holder = text_of(lock_);
    ::close(std::exchange(lock_, -1));
    throw UserError(Place{path_},
                    fmt::format("{} is in use by {}: wait for it, stop it, or choose another "
                                "directory",
                                key_, holder));
  }
  const std::string text = fmt::format("process {} on {}\n", ::getpid(), host);
  if (::ftruncate(lock_, 0) != 0 ||
      ::pwrite(lock_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    const int reason = errno;
    ::close(std::exchange(lock_, -1));
    fail("write " + name, reason);
  }
}

std::string RunDirectory::stored_id() const {
  const std::string name = file("run.id");
  if (std::error_code ignored; !fs::exists(name, ignored))
    return "";
  std::string text = read_whole(name);
  if (text.empty())
    return "";
  if (text.back() == '\n')
    text.pop_back();
  if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != std::string::npos)
    throw UserError(Place{name},
                    fmt::format("this does not name a run: remove it, and the run takes the name "
                                "that its checkpoint in {} tells",
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
                        now.empty() ? "a place that nobody can tell" : now),
      __FILE__, __LINE__);
}

RunDirectory::~RunDirectory() {
  for (const int file : {lock_, place_})
    if (file >= 0)
      ::close(file);
}

}  // namespace trireme::record
