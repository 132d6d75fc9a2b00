// SPDX-License-Identifier: Apache-2.0
#include "h5/file.hpp"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include "base/error.hpp"

namespace trireme::h5 {
namespace {

Properties file_access() {
  Properties access(TRIREME_H5(H5Pcreate(H5P_FILE_ACCESS)));
  TRIREME_H5(H5Pset_fapl_sec2(access.get()));
  TRIREME_H5(H5Pset_fclose_degree(access.get(), H5F_CLOSE_STRONG));
  TRIREME_H5(H5Pset_file_locking(access.get(), false, true));
  return access;
}

void sync_path(const std::string& path, int flags) {
  const int file = ::open(path.c_str(), flags | O_CLOEXEC);
  // In a directory one may be allowed to make files and not to list them: nothing can be done.
  if (file < 0 && errno == EACCES && (flags & O_DIRECTORY) != 0)
    return;
  if (file < 0)
    throw StorageError("file system", "open " + path, std::strerror(errno), __FILE__, __LINE__);
  const int result = ::fsync(file);
  const int reason = errno;
  ::close(file);
  // A file system that cannot sync a directory says EINVAL: there is nothing more to be done.
  if (result != 0 && reason != EINVAL)
    throw StorageError("file system", "fsync " + path, std::strerror(reason), __FILE__, __LINE__);
}

}  // namespace

File create_file(const std::string& path) {
  const Properties access = file_access();
  return File(TRIREME_H5(H5Fcreate(path.c_str(), H5F_ACC_EXCL, H5P_DEFAULT, access.get())));
}

File open_file(const std::string& path, Access access) {
  const Properties properties = file_access();
  const unsigned flags = access == Access::read ? H5F_ACC_RDONLY : H5F_ACC_RDWR;
  return File(TRIREME_H5(H5Fopen(path.c_str(), flags, properties.get())));
}

void flush(const File& file) {
  TRIREME_H5(H5Fflush(file.get(), H5F_SCOPE_GLOBAL));
}

void close(File file) {
  TRIREME_H5(H5Fclose(file.release()));
}

void abandon(File file) noexcept {
  const Turn turn;
  detail::silence();
  H5Fclose(file.release());
}

Probe probe(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return errno == ENOENT || errno == ENOTDIR ? Probe::absent : Probe::unreadable;
  // Format signature. Source: HDF5 File Format Specification 3.0, section II.A.
  constexpr std::array<unsigned char, 8> signature = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
  std::array<unsigned char, 8> begin{};
  const auto got = ::read(file, begin.data(), begin.size());
  ::close(file);
  if (got < 0)
    return Probe::unreadable;
  if (got != static_cast<ssize_t>(begin.size()) || begin != signature)
    return Probe::not_hdf5;
  const Turn turn;
  detail::silence();
  const Properties access = file_access();
  const File opened(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()));
  return opened.get() >= 0 ? Probe::whole : Probe::damaged;
}

Group open_group(hid_t parent, const std::string& path) {
  if (exists(parent, path))
    return Group(TRIREME_H5(H5Gopen2(parent, path.c_str(), H5P_DEFAULT)));
  const Properties links(TRIREME_H5(H5Pcreate(H5P_LINK_CREATE)));
  TRIREME_H5(H5Pset_create_intermediate_group(links.get(), 1));
  return Group(TRIREME_H5(H5Gcreate2(parent, path.c_str(), links.get(), H5P_DEFAULT, H5P_DEFAULT)));
}

bool exists(hid_t parent, const std::string& path) {
  for (auto end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (TRIREME_H5(H5Lexists(parent, part.c_str(), H5P_DEFAULT)) == 0)
      return false;
    if (end == std::string::npos)
      return true;
  }
}

std::string read_text_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || file.bad())
    throw StorageError("file system", "read " + path, std::strerror(errno), __FILE__, __LINE__);
  return text;
}

void write_text_file(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  const bool written =
      file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  int reason = errno;
  if (file != nullptr && std::fclose(file) != 0 && written)
    reason = errno;
  else if (written)
    reason = 0;
  if (reason != 0)
    throw StorageError("file system", "write " + path, std::strerror(reason), __FILE__, __LINE__);
  sync_file(path);
}

void make_directories(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code problem;
  if (fs::is_directory(path, problem))
    return;
  const fs::path parent = fs::path(path).parent_path();
  if (!parent.empty())
    make_directories(parent);
  fs::create_directory(path, problem);
  if (problem)
    throw StorageError("file system", "create directory " + path, problem.message(), __FILE__,
                       __LINE__);
  sync_directory(parent.empty() ? "." : parent.string());
}

void sync_file(const std::string& path) {
  sync_path(path, O_RDONLY);
}

void sync_directory(const std::string& path) {
  sync_path(path, O_RDONLY | O_DIRECTORY);
}

}  // namespace trireme::h5
