// SPDX-License-Identifier: Apache-2.0
#include "h5/space.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/text.hpp"

namespace trireme::h5 {
namespace {

/// Taken at a time, so that the system is not asked at every flush.
constexpr std::int64_t step_bytes = std::int64_t{4} << 20;

/// 0, or why `bytes` cannot be taken for the open file from `begin` on.
int take(int file, std::int64_t begin, std::int64_t bytes) {
  rlimit limit{};  // which ext4 checks only when a file grows, and tmpfs here as well
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      static_cast<rlim_t>(begin + bytes) > limit.rlim_cur)
    return EFBIG;
  int result = 0;
  do {
    result = ::fallocate(file, FALLOC_FL_KEEP_SIZE, begin, bytes) == 0 ? 0 : errno;
  } while (result == EINTR);
  if (result != EOPNOTSUPP && result != ENOSYS)
    return result;
  struct statvfs facts {};
  if (::fstatvfs(file, &facts) != 0)
    return 0;  // not known
  const double free = static_cast<double>(facts.f_bavail) * static_cast<double>(facts.f_frsize);
  return free < static_cast<double>(bytes) ? ENOSPC : 0;
}

}  // namespace

void Room::ensure(std::int64_t end, std::int64_t bytes) {
  if (end + bytes <= until_)
    return;
  const int file = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0)
    throw StorageError("file system", "open " + path_, std::strerror(errno), __FILE__, __LINE__);
  std::int64_t wanted = end + bytes + step_bytes;
  int problem = take(file, until_, wanted - until_);
  if (problem != 0) {  // what is needed now may still fit
    wanted = end + bytes;
    problem = take(file, until_, wanted - until_);
  }
  ::close(file);
  if (problem != 0)
    throw StorageError(
        "file system",
        fmt::format("make room for {} in {}", bytes_text(static_cast<double>(bytes)), path_),
        fmt::format("{}; the file is whole, what it did not take yet is lost: free "
                    "space and start again",
                    std::strerror(problem)),
        __FILE__, __LINE__);
  until_ = wanted;
}

void Room::release() const noexcept {
  const int file = until_ > 0 ? ::open(path_.c_str(), O_WRONLY | O_CLOEXEC) : -1;
  if (file < 0)
    return;
  struct stat facts {};
  if (::fstat(file, &facts) == 0)
    static_cast<void>(::ftruncate(file, facts.st_size) == 0);
  ::close(file);
}

std::int64_t end_of(const File& file) {
  hsize_t bytes = 0;
  TRIREME_H5_OF(file.get(), "", H5Fget_filesize(file.get(), &bytes));
  return static_cast<std::int64_t>(bytes);
}

}  // namespace trireme::h5
