// SPDX-License-Identifier: Apache-2.0
#include "base/input_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"

namespace trireme {
namespace {

[[noreturn]] void fail(const char* call, const std::string& path, const std::string& reason) {
  throw StorageError("file system", std::string(call) + " " + path, reason, __FILE__, __LINE__);
}

}  // namespace

const char* other_than_file(unsigned mode) {
  switch (mode & S_IFMT) {
    case S_IFREG:
      return "";
    case S_IFDIR:
      return "a directory";
    case S_IFIFO:
      return "a FIFO";
    case S_IFSOCK:
      return "a socket";
    default:
      return "a device";
  }
}

InputFile::InputFile(std::string path)
    : path_(std::move(path)),
      descriptor_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {
  if (descriptor_ < 0)
    fail("open", path_, std::strerror(errno));
  std::string problem;
  struct stat facts {};
  if (::fstat(descriptor_, &facts) != 0)
    problem = std::strerror(errno);
  else if (const char* other = other_than_file(facts.st_mode); *other != '\0')
    problem = fmt::format("{} is in the place of a file", other);
  if (!problem.empty()) {
    ::close(std::exchange(descriptor_, -1));
    fail("open", path_, problem);
  }
  size_ = facts.st_size;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0)
    ::close(descriptor_);
}

std::size_t InputFile::read_some(std::int64_t offset, std::span<std::byte> bytes) const {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const auto got = ::pread(descriptor_, bytes.data() + done, bytes.size() - done,
                             offset + static_cast<std::int64_t>(done));
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      fail("read", path_, std::strerror(errno));
    if (got == 0)
      break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

void InputFile::read(std::int64_t offset, std::span<std::byte> bytes) const {
  const std::size_t got = read_some(offset, bytes);
  if (got < bytes.size())
    fail("read", path_,
         fmt::format("it was cut while it was in use: it ends at byte {} and had {}",
                     offset + static_cast<std::int64_t>(got), size_));
}

void expect_writable_place(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0)
    return;  // it is made, or opening it reports the reason
  if (const char* other = other_than_file(facts.st_mode); *other != '\0')
    fail("open", path, fmt::format("{} is in the place of a file", other));
}

std::string read_whole(const std::string& path) {
  const InputFile file(path);
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  const std::size_t got = file.read_some(0, std::as_writable_bytes(std::span(text)));
  text.resize(got);
  // A file of size 0 may lie in /proc, and a file that grows is read up to its present end.
  for (char block[4096];;) {
    const std::size_t more = file.read_some(static_cast<std::int64_t>(text.size()),
                                            std::as_writable_bytes(std::span(block)));
    text.append(block, more);
    if (more < sizeof block)
      return text;
  }
}

}  // namespace trireme
