// SPDX-License-Identifier: Apache-2.0
#include "record/run_directory.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/error.hpp"

namespace trireme::record {
namespace {

namespace fs = std::filesystem;

/// What rank 0 found, as it travels to the other ranks: one letter and a text.
enum Outcome : char { with_lock = 'L', without_lock = 'U', user_error = 'E', storage_error = 'S' };

std::string storage(const std::string& what, int reason) {
  return char(storage_error) + what + "\n" + std::strerror(reason);
}

std::string text_of(int file) {
  char text[256];
  const auto got = ::pread(file, text, sizeof text, 0);
  std::string holder(text, got > 0 ? static_cast<std::size_t>(got) : 0);
  while (!holder.empty() && holder.back() == '\n') holder.pop_back();
  return holder.empty() ? "another run" : holder;
}

/// Creates and locks; the descriptor goes to `lock`.
std::string prepare(const std::string& path, const std::string& host, int& lock) {
  std::error_code problem;
  for (fs::path part = path; !part.empty(); part = part.parent_path()) {
    if (fs::exists(part, problem) && !fs::is_directory(part, problem))
      return char(user_error) +
             fmt::format("{}\na file is in the way of the run directory {}", part.string(), path);
    if (part == part.parent_path())
      break;
  }
  fs::create_directories(path, problem);
  if (problem)
    return storage("create directory " + path, problem.value());

  const std::string file = path + "/lock";
  const int opened = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (opened < 0)
    return storage("write into run directory: open " + file, errno);
  const bool held = ::flock(opened, LOCK_EX | LOCK_NB) == 0;
  if (!held && errno == EWOULDBLOCK) {
    const std::string holder = text_of(opened);
    ::close(opened);
    return char(user_error) +
           fmt::format(
               "{}\nthe run directory is in use by {}: wait for it, stop it, or choose "
               "another run.directory",
               path, holder);
  }
  const std::string text = fmt::format("process {} on {}\n", ::getpid(), host);
  if (::ftruncate(opened, 0) != 0 ||
      ::pwrite(opened, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    const int reason = errno;
    ::close(opened);
    return storage("write " + file, reason);
  }
  lock = opened;
  return std::string(1, held ? with_lock : without_lock);
}

}  // namespace

RunDirectory::RunDirectory(std::string path, comm::World& world) : path_(std::move(path)) {
  while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
  std::string outcome;
  if (world.rank() == 0)
    outcome = prepare(path_, world.host(), lock_);
  outcome = world.broadcast(std::move(outcome), 0);
  const auto split = outcome.find('\n');
  switch (outcome.at(0)) {
    case user_error:
      throw UserError(Place{outcome.substr(1, split - 1)}, outcome.substr(split + 1));
    case storage_error:
      throw StorageError("file system", outcome.substr(1, split - 1), outcome.substr(split + 1),
                         __FILE__, __LINE__);
    default:
      locked_ = outcome.at(0) == with_lock;
  }
}

RunDirectory::~RunDirectory() {
  if (lock_ >= 0)
    ::close(lock_);
}

}  // namespace trireme::record
