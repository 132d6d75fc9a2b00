// SPDX-License-Identifier: Apache-2.0
#include "base/new_directory.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "base/error.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

/// More in one call is cut by the kernel.
constexpr std::size_t most_at_once = std::size_t{1} << 30U;

[[noreturn]] void fail_to(const char* call, const std::string& path) {
  throw StorageError("file system", std::string(call) + " " + path, std::strerror(errno), __FILE__,
                     __LINE__);
}

void synchronize_directory(const std::string& path) {
  const int directory = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0)
    fail_to("open", path);
  const int problem = ::fsync(directory) != 0 ? errno : 0;
  ::close(directory);
  if (problem != 0 && problem != EINVAL) {  // a file system without it
    errno = problem;
    fail_to("fsync", path);
  }
}

}  // namespace

NewFile::NewFile(std::string path)
    : path_(std::move(path)),
      descriptor_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0)
    fail_to("open", path_);
}

NewFile::~NewFile() {
  if (descriptor_ >= 0)
    ::close(descriptor_);
}

void NewFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written =
        ::write(descriptor_, bytes.data(), std::min(bytes.size(), most_at_once));
    if (written < 0 && errno != EINTR)
      fail_to("write", path_);
    const auto count = written < 0 ? std::size_t{0} : static_cast<std::size_t>(written);
    bytes = bytes.subspan(count);
    bytes_ += static_cast<std::int64_t>(count);
  }
}

void NewFile::close() {
  if (::fsync(descriptor_) != 0)
    fail_to("fsync", path_);
  if (::close(std::exchange(descriptor_, -1)) != 0)
    fail_to("close", path_);
}

void expect_new_directory(const std::string& path) {
  if (fs::exists(fs::symlink_status(path)) && !(fs::is_directory(path) && fs::is_empty(path)))
    throw UserError({path}, "this is there already; name a new directory, or remove this one");
}

NewDirectory::NewDirectory(const std::string& path) : path_(path) {
  expect_new_directory(path);
  fs::path target = fs::absolute(path).lexically_normal();
  if (!target.has_filename())
    target = target.parent_path();
  target_ = target.string();
  fs::create_directories(target.parent_path());
  const std::string stem = target_ + ".part-" + std::to_string(::getpid());
  std::string aside = stem;
  for (int number = 2; !fs::create_directory(aside); ++number)  // what is there is another's
    aside = stem + "-" + std::to_string(number);
  aside_ = aside;
}

NewDirectory::~NewDirectory() {
  std::error_code ignored;
  if (!committed_)
    fs::remove_all(aside_, ignored);
}

void NewDirectory::write(const std::string& name, std::string_view bytes) const {
  NewFile out(file(name));
  out.write(bytes);
  out.close();
}

void NewDirectory::commit() {
  synchronize_directory(aside_);
  if (std::rename(aside_.c_str(), target_.c_str()) != 0) {
    const int problem = errno;
    if (problem == ENOTEMPTY || problem == EEXIST || problem == ENOTDIR)
      expect_new_directory(path_);
    errno = problem;
    fail_to("rename", aside_);
  }
  committed_ = true;
  synchronize_directory(fs::path(target_).parent_path().string());
}

}  // namespace trireme
