// SPDX-License-Identifier: Apache-2.0
#include "base/file_lock.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/error.hpp"

namespace trireme {

FileLock::FileLock(std::string path, const std::string& purpose)
    : path_(std::move(path)), file_(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
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

void FileLock::sign(const std::string& host) const {
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
