// SPDX-License-Identifier: Apache-2.0
#include "files/descriptor.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"
#include "files/path.hpp"

namespace trireme::files {
namespace {

/// The kernel transfers at most about 2 GiB per call.
constexpr std::size_t most_at_once = std::size_t{1} << 30U;

}  // namespace

void fail(const std::string& statement, int error) {
  throw StorageError("file system", statement, std::strerror(error));
}

Descriptor::Descriptor(std::string path, int flags)
    : path_(std::move(path)), file_(::open(path_.c_str(), flags | O_CLOEXEC, 0666)) {
  if (file_ < 0)
    fail("open " + path_, errno);
}

Descriptor Descriptor::regular(std::string path, int flags) {
  Descriptor opened(std::move(path), flags | O_NONBLOCK | O_NOCTTY);
  struct stat facts {};
  if (::fstat(opened.file_, &facts) != 0)
    fail("open " + opened.path_, errno);
  expect_regular(opened.path_, facts.st_mode);
  return opened;
}

Descriptor::Descriptor(Descriptor&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  return *this;
}

Descriptor::~Descriptor() {
  if (file_ >= 0)
    ::close(file_);
}

std::int64_t Descriptor::size() const {
  struct stat facts {};
  if (::fstat(file_, &facts) != 0)
    fail("look at " + path_, errno);
  return facts.st_size;
}

std::size_t Descriptor::read_some(std::int64_t offset, std::span<std::byte> bytes) const {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const auto got = ::pread(file_, bytes.data() + done, bytes.size() - done,
                             offset + static_cast<std::int64_t>(done));
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      fail("read " + path_, errno);
    if (got == 0)
      break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

void Descriptor::write(std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const auto count = ::write(file_, bytes.data(), std::min(bytes.size(), most_at_once));
    if (count < 0 && errno != EINTR)
      fail("write " + path_, errno);
    bytes = bytes.subspan(count > 0 ? static_cast<std::size_t>(count) : 0);
  }
}

void Descriptor::write_at(std::int64_t offset, std::span<const std::byte> bytes) const {
  for (std::int64_t at = offset; !bytes.empty();) {
    const auto count = ::pwrite(file_, bytes.data(), std::min(bytes.size(), most_at_once), at);
    if (count < 0 && errno != EINTR)
      fail("write " + path_, errno);
    at += std::max<std::int64_t>(count, 0);
    bytes = bytes.subspan(count > 0 ? static_cast<std::size_t>(count) : 0);
  }
}

void Descriptor::begin_transfer(std::int64_t offset, std::int64_t count) const noexcept {
  static_cast<void>(::sync_file_range(file_, offset, count, SYNC_FILE_RANGE_WRITE));
}

void Descriptor::rewind(std::int64_t offset) const {
  if (::ftruncate(file_, offset) != 0 || ::lseek(file_, offset, SEEK_SET) != offset)
    fail("truncate " + path_, errno);
}

void Descriptor::rewrite_front(std::span<const std::byte> bytes) const {
  if (::lseek(file_, 0, SEEK_SET) != 0)
    fail("seek in " + path_, errno);
  write(bytes);
}

void Descriptor::sync() const {
  if (::fsync(file_) != 0 && errno != EINVAL)  // EINVAL: the file system does not support it
    fail("fsync " + path_, errno);
}

void Descriptor::close() {
  if (::close(std::exchange(file_, -1)) != 0)
    fail("close " + path_, errno);
}

Taken Descriptor::lock(bool alone, bool waits) const {
  int outcome = 0;
  do outcome = ::flock(file_, (alone ? LOCK_EX : LOCK_SH) | (waits ? 0 : LOCK_NB));
  while (outcome != 0 && errno == EINTR);
  if (outcome == 0)
    return Taken::yes;
  return errno == EWOULDBLOCK ? Taken::by_another : Taken::not_supported;
}

bool Descriptor::in_place() const {
  struct stat held {
  }, found{};
  if (::fstat(file_, &held) == 0 && ::stat(path_.c_str(), &found) == 0)
    return held.st_dev == found.st_dev && held.st_ino == found.st_ino;
  if (errno != ENOENT && errno != ENOTDIR)
    fail("look at " + path_, errno);
  return false;
}

void Descriptor::touch() const noexcept {
  static_cast<void>(::futimens(file_, nullptr));
}

InputFile::InputFile(std::string path)
    : file_(Descriptor::regular(std::move(path), O_RDONLY)), size_(file_.size()) {}

void InputFile::read(std::int64_t offset, std::span<std::byte> bytes) const {
  if (read_some(offset, bytes) < bytes.size())
    throw StorageError("file system", "read " + path(),
                       fmt::format("it was cut while it was in use: it has {} bytes and had {}",
                                   file_.size(), size_));
}

std::string read_whole(const std::string& path) {
  const InputFile file(path);
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  text.resize(file.read_some(0, std::as_writable_bytes(std::span(text))));
  // Files in /proc have size 0, and a growing file is read up to its current end.
  for (char block[4096];;) {
    const std::size_t more = file.read_some(static_cast<std::int64_t>(text.size()),
                                            std::as_writable_bytes(std::span(block)));
    text.append(block, more);
    if (more < sizeof block)
      return text;
  }
}

}  // namespace trireme::files
