// SPDX-License-Identifier: Apache-2.0
#include "h5/driver.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#if __has_include(<H5FDdevelop.h>)  // HDF5 1.14; older ones have it in hdf5.h
#include <H5FDdevelop.h>
#endif

#include "base/error.hpp"

#include "h5/raw_file.hpp"

namespace trireme::h5 {
namespace {

struct Open : H5FD_t {  // HDF5 sees that part
  std::string path;
  int file = -1;
  dev_t device = 0;
  ino_t inode = 0;
  bool writable = false, closing = false;
  haddr_t end = 0;        ///< the size as HDF5 sees it
  haddr_t allocated = 0;  ///< HDF5's own mark
  /// Outlives this object where the file is being closed.
  std::shared_ptr<std::string> problem = std::make_shared<std::string>();
};

Open& of(H5FD_t* file) {
  return *static_cast<Open*>(file);
}
const Open& of(const H5FD_t* file) {
  return *static_cast<const Open*>(file);
}

/// Onto HDF5's error stack, as a message that innermost_message() can parse.
void push(const char* what, const std::string& path, int reason) {
  H5Epush2(H5E_DEFAULT, __FILE__, what, __LINE__, H5E_ERR_CLS, H5E_IO, H5E_WRITEERROR,
           "%s failed: name = '%s', error message = '%s'", what, path.c_str(),
           std::strerror(reason));
}

herr_t fail(Open& open, const char* what, int reason) {
  if (open.problem->empty())
    *open.problem = std::strerror(reason);
  if (open.closing)
    return 0;
  push(what, open.path, reason);
  return -1;
}

H5FD_t* open_callback(const char* name, unsigned flags, hid_t, haddr_t) {
  try {
    auto open = std::make_unique<Open>();
    open->path = name;
    open->writable = (flags & H5F_ACC_RDWR) != 0;
    int words = O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (open->writable ? O_RDWR : O_RDONLY);
    words |= (flags & H5F_ACC_CREAT) != 0 ? O_CREAT : 0;
    words |= (flags & H5F_ACC_EXCL) != 0 ? O_EXCL : 0;
    words |= (flags & H5F_ACC_TRUNC) != 0 ? O_TRUNC : 0;
    open->file = ::open(name, words, 0666);
    struct stat facts {};
    if (open->file < 0 || ::fstat(open->file, &facts) != 0) {
      push("open", name, errno);
      if (open->file >= 0)
        ::close(open->file);
      return nullptr;
    }
    open->device = facts.st_dev;
    open->inode = facts.st_ino;
    open->end = static_cast<haddr_t>(facts.st_size);
    return open.release();
  } catch (...) {  // no exception may pass through HDF5
    push("open", name, ENOMEM);
    return nullptr;
  }
}

/// A close that fails after all was flushed adds nothing to a failed sync; a file that must
/// be on the disk is synced.
herr_t close_callback(H5FD_t* file) {
  const std::unique_ptr<Open> open(&of(file));
  ::close(open->file);
  return 0;
}

int compare(const H5FD_t* a, const H5FD_t* b) {
  const auto key = [](const H5FD_t* file) { return std::pair(of(file).device, of(file).inode); };
  return key(a) < key(b) ? -1 : key(b) < key(a) ? 1 : 0;
}

herr_t query(const H5FD_t*, unsigned long* flags) {
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
           H5FD_FEAT_AGGREGATE_SMALLDATA | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
  return 0;
}

haddr_t allocated(const H5FD_t* file, H5FD_mem_t) {
  return of(file).allocated;
}
herr_t set_allocated(H5FD_t* file, H5FD_mem_t, haddr_t end) {
  of(file).allocated = end;
  return 0;
}
haddr_t end(const H5FD_t* file, H5FD_mem_t) {
  return of(file).end;
}
herr_t handle(H5FD_t* file, hid_t, void** out) {
  *out = &of(file);
  return 0;
}

herr_t read(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t address, size_t count, void* out) {
  const Open& open = of(file);
  const int problem = read_all(open.file, out, count, static_cast<std::int64_t>(address));
  if (problem != 0)
    push("read", open.path, problem);
  return problem == 0 ? 0 : -1;
}

herr_t write(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t address, size_t count, const void* from) {
  Open& open = of(file);
  if (!open.problem->empty())
    return 0;  // it is given up
  if (const int problem = write_all(open.file, from, count, static_cast<std::int64_t>(address)))
    return fail(open, "write", problem);
  open.end = std::max(open.end, address + count);
  return 0;
}

herr_t truncate(H5FD_t* file, hid_t, hbool_t) {
  Open& open = of(file);
  if (!open.problem->empty() || !open.writable || open.end == open.allocated)
    return 0;
  open.end = open.allocated;
  return ::ftruncate(open.file, static_cast<off_t>(open.end)) == 0 ? 0
                                                                   : fail(open, "truncate", errno);
}

H5FD_class_t make_class() {
  H5FD_class_t made{};
#ifdef H5FD_CLASS_VERSION
  made.version = H5FD_CLASS_VERSION;
  made.value = static_cast<H5FD_class_value_t>(H5_VFD_RESERVED + 1);
#endif
  made.name = "trireme";
  made.maxaddr = (haddr_t{1} << 63U) - 1;
  made.fc_degree = H5F_CLOSE_STRONG;
  made.open = open_callback;
  made.close = close_callback;
  made.cmp = compare;
  made.query = query;
  made.get_eoa = allocated;
  made.set_eoa = set_allocated;
  made.get_eof = end;
  made.get_handle = handle;
  made.read = read;
  made.write = write;
  made.truncate = truncate;
  constexpr H5FD_mem_t map[] = H5FD_FLMAP_DICHOTOMY;
  std::ranges::copy(map, made.fl_map);
  return made;
}

hid_t driver() {
  static const H5FD_class_t made = make_class();
  static const hid_t id = TRIREME_H5(H5FDregister(&made));
  return id;
}

Open* state_of(hid_t file) noexcept {
  void* found = nullptr;
  return H5Fget_vfd_handle(file, H5P_DEFAULT, &found) < 0 ? nullptr : static_cast<Open*>(found);
}

}  // namespace

Properties file_access() {
  Properties access(TRIREME_H5(H5Pcreate(H5P_FILE_ACCESS)));
  TRIREME_H5(H5Pset_driver(access.get(), driver(), nullptr));
  TRIREME_H5(H5Pset_fclose_degree(access.get(), H5F_CLOSE_STRONG));
  TRIREME_H5(H5Pset_file_locking(access.get(), false, true));
  return access;
}

std::string close_with_words(hid_t file) {
  const LibraryLock lock;
  detail::silence();
  auto problem = std::make_shared<std::string>();
  if (Open* open = state_of(file); open != nullptr) {
    open->closing = true;
    problem = open->problem;
  }
  if (H5Fclose(file) < 0 && problem->empty())
    *problem = "no reason given";
  return *problem;
}

herr_t close_file(hid_t file) {
  return close_with_words(file).empty() ? 0 : -1;
}

std::string write_problem(hid_t file) {
  const LibraryLock lock;
  const Open* open = state_of(file);
  return open == nullptr ? "" : *open->problem;
}

}  // namespace trireme::h5
