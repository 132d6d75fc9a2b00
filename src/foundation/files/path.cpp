// SPDX-License-Identifier: Apache-2.0
#include "files/path.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"
#include "files/descriptor.hpp"

namespace trireme::files {

bool exists(const std::string& path) {
  struct stat facts {};
  if (::lstat(path.c_str(), &facts) == 0)
    return true;
  if (errno != ENOENT && errno != ENOTDIR)
    fail("look at " + path, errno);
  return false;
}

bool is_about_the_path(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case EACCES:
    case EPERM:
    case ELOOP:
    case ENAMETOOLONG:
    case EINVAL:
    case EILSEQ:
    case ENXIO:   // a socket
    case ENODEV:  // a device without a driver
      return true;
    default:
      return false;
  }
}

void expect_about_the_path(int error, const std::string& call) {
  if (!is_about_the_path(error))
    fail(call, error);
}

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

void expect_input_file(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0 || ::access(path.c_str(), R_OK) != 0) {
    const int error = errno;
    expect_about_the_path(error, "open " + path);
    throw UserError(Place{path}, std::strerror(error));
  }
  if (const char* other = other_than_file(facts.st_mode); *other != '\0')
    throw UserError(Place{path}, fmt::format("this is {} and not a file", other));
}

void expect_regular(const std::string& path, unsigned mode) {
  if (const char* other = other_than_file(mode); *other != '\0')
    throw StorageError("file system", "open " + path,
                       fmt::format("{} is in the place of a file", other));
}

void expect_writable_place(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) == 0)  // a missing file is created; opening reports errors
    expect_regular(path, facts.st_mode);
}

void make_directories(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code problem;
  if (path.empty() || fs::is_directory(path, problem))
    return;
  const std::string parent = fs::path(path).parent_path().string();
  make_directories(parent);
  fs::create_directory(path, problem);
  if (problem)
    fail("create directory " + path, problem.value());
  sync_directory(parent);
}

void rename(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0)
    fail("rename " + from + " to " + to, errno);
}

void sync_file(const std::string& path) {
  Descriptor(path, O_RDONLY).sync();
}

void sync_directory(const std::string& path) {
  const std::string name = path.empty() ? "." : path;
  // A directory that may be written but not listed cannot be opened, so it cannot be synced.
  if (::access(name.c_str(), R_OK) == 0 || errno != EACCES)
    Descriptor(name, O_RDONLY | O_DIRECTORY).sync();
}

}  // namespace trireme::files
