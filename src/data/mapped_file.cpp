// SPDX-License-Identifier: Apache-2.0
#include "data/mapped_file.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"

namespace trireme::data {

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  const auto fail = [&](const char* call, int descriptor) {
    const std::string reason = std::strerror(errno);
    if (descriptor >= 0)
      ::close(descriptor);
    throw StorageError("file system", fmt::format("{} {}", call, path_), reason, __FILE__,
                       __LINE__);
  };
  const int descriptor = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0)
    fail("open", -1);
  struct stat status {};
  if (::fstat(descriptor, &status) != 0)
    fail("stat", descriptor);
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ > 0) {
    void* memory = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor, 0);
    if (memory == MAP_FAILED) {
      size_ = 0;
      fail("mmap", descriptor);
    }
    data_ = static_cast<const std::byte*>(memory);
  }
  ::close(descriptor);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr)
    ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace trireme::data
