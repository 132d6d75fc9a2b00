// SPDX-License-Identifier: Apache-2.0
#include "h5/raw_file.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"
#include "files/path.hpp"

namespace trireme::h5 {

int write_all(int file, const void* from, std::size_t count, std::int64_t offset) {
  const auto* bytes = static_cast<const std::byte*>(from);
  while (count > 0) {
    const auto written = ::pwrite(file, bytes, count, offset);
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return written < 0 ? errno : ENOSPC;
    bytes += written;
    count -= static_cast<std::size_t>(written);
    offset += written;
  }
  return 0;
}

int read_all(int file, void* to, std::size_t count, std::int64_t offset) {
  auto* bytes = static_cast<std::byte*>(to);
  while (count > 0) {
    const auto got = ::pread(file, bytes, count, offset);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return errno;
    if (got == 0) {
      std::memset(bytes, 0, count);
      return 0;
    }
    bytes += got;
    count -= static_cast<std::size_t>(got);
    offset += got;
  }
  return 0;
}

RawFile::RawFile(std::string path)
    : path_(std::move(path)), file_(::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK)) {
  struct stat facts {};
  if (file_ < 0 || ::fstat(file_, &facts) != 0)
    fail("open");
  if (const char* other = files::other_than_file(facts.st_mode); *other != '\0') {
    ::close(std::exchange(file_, -1));
    throw StorageError("file system", "open " + path_,
                       std::string(other) + " is in the place of a file", __FILE__, __LINE__);
  }
  direct_ = ::open(path_.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC);
}

RawFile::~RawFile() {
  for (const int file : {file_, direct_})
    if (file >= 0)
      ::close(file);
}

void RawFile::write(std::int64_t offset, std::span<const std::byte> bytes) {
  const std::size_t written = write_direct(offset, bytes);
  write_cached(offset + static_cast<std::int64_t>(written), bytes.subspan(written));
}

std::size_t RawFile::write_direct(std::int64_t offset, std::span<const std::byte> bytes) {
  if (direct_ < 0 || static_cast<std::uint64_t>(offset) % page_bytes != 0 ||
      reinterpret_cast<std::uintptr_t>(bytes.data()) % page_bytes != 0)
    return 0;
  const std::size_t whole = bytes.size() / page_bytes * page_bytes;
  std::size_t done = 0;
  while (done < whole) {
    const auto written = ::pwrite(direct_, bytes.data() + done, whole - done,
                                  offset + static_cast<std::int64_t>(done));
    if (written < 0 && errno == EINTR)
      continue;
    // Refused: larger pages are asked for, or the disk is full. A cached write reports it.
    if (written <= 0 || static_cast<std::size_t>(written) % page_bytes != 0) {
      ::close(std::exchange(direct_, -1));
      break;
    }
    done += static_cast<std::size_t>(written);
  }
  return done;
}

void RawFile::write_cached(std::int64_t offset, std::span<const std::byte> bytes) {
  if (const int problem = write_all(file_, bytes.data(), bytes.size(), offset); problem != 0) {
    errno = problem;
    fail("write");
  }
  const auto count = static_cast<off64_t>(bytes.size());
  // A hint: a file system without it loses nothing but time.
  if (count > 0)
    static_cast<void>(::sync_file_range(file_, offset, count, SYNC_FILE_RANGE_WRITE));
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
