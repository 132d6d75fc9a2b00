// SPDX-License-Identifier: Apache-2.0
#include "h5/raw_file.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"

namespace trireme::h5 {

RawFile::RawFile(std::string path, Access access)
    : path_(std::move(path)),
      file_(::open(path_.c_str(), (access == Access::read ? O_RDONLY : O_RDWR) | O_CLOEXEC)) {
  if (file_ < 0)
    fail("open");
}

RawFile::~RawFile() {
  if (file_ >= 0)
    ::close(file_);
}

void RawFile::write(std::int64_t offset, std::span<const std::byte> bytes) {
  const std::int64_t begin = offset;
  const auto count = static_cast<off64_t>(bytes.size());
  while (!bytes.empty()) {
    const auto written = ::pwrite(file_, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      fail("write");
    offset += written;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  // A hint: a file system that knows no such thing loses nothing but time.
  static_cast<void>(::sync_file_range(file_, begin, count, SYNC_FILE_RANGE_WRITE));
}

void RawFile::read(std::int64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const auto got = ::pread(file_, bytes.data(), bytes.size(), offset);
    if (got < 0 && errno == EINTR)
      continue;
    if (got == 0)
      errno = ENODATA;
    if (got <= 0)
      fail("read");
    offset += got;
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

void RawFile::sync() {
  if (::fsync(file_) != 0)
    fail("fsync");
}

std::int64_t RawFile::size() const {
  struct stat facts {};
  if (::fstat(file_, &facts) != 0)
    fail("stat");
  return facts.st_size;
}

void RawFile::fail(const char* what) const {
  throw StorageError("file system", std::string(what) + " " + path_, std::strerror(errno), __FILE__,
                     __LINE__);
}

}  // namespace trireme::h5
