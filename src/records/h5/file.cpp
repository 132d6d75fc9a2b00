// SPDX-License-Identifier: Apache-2.0
#include "h5/file.hpp"

#include <array>
#include <cerrno>
#include <cstddef>
#include <memory>

#include <sys/stat.h>

#include "base/error.hpp"
#include "files/input_file.hpp"

#include "h5/driver.hpp"
#include "h5/references.hpp"

namespace trireme::h5 {
namespace {

/// HDF5 1.10.8 crashes where it gets no memory for its own blocks (H5FL_blk_malloc, H5AC_create).
/// With that much left it does not crash; else this throws std::bad_alloc.
void expect_memory() {
  constexpr std::size_t needed = std::size_t{16} << 20U;
  const std::unique_ptr<std::byte[]> asked(new std::byte[needed]);
  asm volatile("" : : "g"(asked.get()) : "memory");  // asked for although it is not used
}

}  // namespace

File create_file(const std::string& path) {
  expect_memory();
  const Properties access = file_access();
  return File(TRIREME_H5_OF(H5I_INVALID_HID, path,
                            H5Fcreate(path.c_str(), H5F_ACC_EXCL, H5P_DEFAULT, access.get())));
}

File open_file(const std::string& path, Access access) {
  const files::InputFile regular(path);  // H5Fopen would wait for the other end of a FIFO
  expect_memory();
  const Properties properties = file_access();
  const unsigned flags = access == Access::read ? H5F_ACC_RDONLY : H5F_ACC_RDWR;
  File file(TRIREME_H5_OF(H5I_INVALID_HID, path, H5Fopen(path.c_str(), flags, properties.get())));
  if (const std::string outside = leads_outside(file.get()); !outside.empty())
    throw DamagedError("HDF5", "opening " + path, "refused: " + outside, __FILE__, __LINE__);
  return file;
}

void flush(const File& file) {
  TRIREME_H5_OF(file.get(), "", H5Fflush(file.get(), H5F_SCOPE_GLOBAL));
  if (const std::string problem = write_problem(file.get()); !problem.empty())
    throw StorageError("HDF5", detail::about("H5Fflush", file.get(), ""), problem, __FILE__,
                       __LINE__);
}

void close(File file) {
  const LibraryLock lock;
  flush(file);
  const std::string what = detail::about("H5Fclose", file.get(), "");
  if (const std::string problem = close_with_words(file.release()); !problem.empty())
    throw StorageError("HDF5", what, problem, __FILE__, __LINE__);
}

void abandon(File file) noexcept {
  close_with_words(file.release());
}

Group open_group(hid_t parent, const std::string& path) {
  if (exists(parent, path))
    return Group(TRIREME_H5_OF(parent, path, H5Gopen2(parent, path.c_str(), H5P_DEFAULT)));
  const Properties links(TRIREME_H5(H5Pcreate(H5P_LINK_CREATE)));
  TRIREME_H5(H5Pset_create_intermediate_group(links.get(), 1));
  return Group(TRIREME_H5_OF(
      parent, path, H5Gcreate2(parent, path.c_str(), links.get(), H5P_DEFAULT, H5P_DEFAULT)));
}

bool exists(hid_t parent, const std::string& path) {
  for (auto end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (TRIREME_H5_OF(parent, part, H5Lexists(parent, part.c_str(), H5P_DEFAULT)) == 0)
      return false;
    if (end == std::string::npos)
      return true;
  }
}

}  // namespace trireme::h5
