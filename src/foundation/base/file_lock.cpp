// SPDX-License-Identifier: Apache-2.0
#include "base/file_lock.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"

namespace trireme {

FileLock::FileLock(std::string path, const std::string& purpose)
    : path_(std::move(path)), file_(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (file_ < 0)
    throw StorageError("file system", purpose + "open " + path_, std::strerror(errno), __FILE__,
                       __LINE__);
}

FileLock::FileLock(FileLock&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)) {}

FileLock::~FileLock() {
  if (file_ >= 0)
    ::close(file_);
}

FileLock::Taken FileLock::lock(int operation) const {
  int outcome = 0;
  do outcome = ::flock(file_, operation | LOCK_NB);
  while (outcome != 0 && errno == EINTR);
  if (outcome == 0)
    return Taken::yes;
  return errno == EWOULDBLOCK ? Taken::by_another : Taken::not_supported;
}

FileLock::Taken FileLock::take_alone() {
  return lock(LOCK_EX);
}

FileLock::Taken FileLock::share() {
  return lock(LOCK_SH);
}

bool FileLock::in_place() const {
  struct stat held {
  }, found{};
  return ::fstat(file_, &held) == 0 && ::stat(path_.c_str(), &found) == 0 &&
         held.st_dev == found.st_dev && held.st_ino == found.st_ino;
}

void FileLock::touch() const noexcept {
  static_cast<void>(::futimens(file_, nullptr));
}

void FileLock::sign(const std::string& host) const {
  if (const std::string line = holder(""); !line.empty() && !line.starts_with("process "))
    throw UserError(Place{path_},
                    "trireme keeps its lock under this name, and the file is another program's. "
                    "Move it to another place, or choose another directory");
  const std::string text = fmt::format("process {} on {}\n", ::getpid(), host);
  if (::ftruncate(file_, 0) != 0 ||
      ::pwrite(file_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    throw StorageError("file system", "write " + path_, std::strerror(errno), __FILE__, __LINE__);
}

std::string FileLock::holder(const std::string& unknown) const {
  char text[256];
  const auto got = ::pread(file_, text, sizeof text, 0);
  std::string line(text, got > 0 ? static_cast<std::size_t>(got) : 0);
  while (!line.empty() && line.back() == '\n') line.pop_back();
  return line.empty() ? unknown : line;
}

}  // namespace trireme
