// SPDX-License-Identifier: Apache-2.0
#include "record/also/append_file.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"
#include "files/path.hpp"

namespace trireme::record {

AppendFile::AppendFile(std::string path, Open how) : path_(std::move(path)) {
  files::expect_writable_place(path_);
  const int flags = O_WRONLY | O_CLOEXEC | (how == Open::anew ? O_CREAT | O_EXCL : 0);
  descriptor_ = ::open(path_.c_str(), flags, 0666);
  struct stat facts {};
  if (descriptor_ < 0 || ::fstat(descriptor_, &facts) != 0) {
    const int reason = errno;
    if (descriptor_ >= 0)
      ::close(descriptor_);
    fail("open", reason);
  }
  size_ = facts.st_size;
}

AppendFile::~AppendFile() {
  if (descriptor_ >= 0)
    ::close(descriptor_);
}

AppendFile::AppendFile(AppendFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_) {}

void AppendFile::append(std::string_view bytes) {
  std::int64_t at = size_;
  while (!bytes.empty()) {
    const auto written = ::pwrite(descriptor_, bytes.data(), bytes.size(), at);
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0) {
      const int reason = written < 0 ? errno : ENOSPC;
      // Where even that fails, a reader finds a line that is cut, as after a power cut.
      static_cast<void>(::ftruncate(descriptor_, size_) == 0);
      fail("write", reason);
    }
    at += written;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  size_ = at;
}

void AppendFile::replace(const std::string& path) {
  if (::fsync(descriptor_) != 0)
    fail("fsync", errno);
  if (std::rename(path_.c_str(), path.c_str()) != 0)
    fail(("name " + path).c_str(), errno);
  path_ = path;
  files::sync_directory(std::filesystem::absolute(path).parent_path().string());
}

void AppendFile::fail(const char* what, int reason) const {
  throw StorageError("record.also", std::string(what) + " " + path_, std::strerror(reason),
                     __FILE__, __LINE__);
}

}  // namespace trireme::record
