// SPDX-License-Identifier: Apache-2.0
#include "h5/driver.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include <fcntl.h>

#if __has_include(<H5FDdevelop.h>)  // HDF5 1.14; older ones have it in hdf5.h
#include <H5FDdevelop.h>
#endif

#include "base/error.hpp"

namespace trireme::h5 {
namespace {

struct Output : H5FD_t {  // HDF5 sees that part
  explicit Output(files::Descriptor opened)
      : H5FD_t{}, file(std::move(opened)), end(static_cast<haddr_t>(file.size())) {}

  files::Descriptor file;
  std::shared_ptr<std::string> problem = std::make_shared<std::string>();
  haddr_t end;            ///< the size as HDF5 sees it
  haddr_t allocated = 0;  ///< HDF5's own mark
  bool closing = false;
};

/// The new file that open() takes; under the LibraryLock.
std::optional<files::Descriptor> next;

Output& of(H5FD_t* file) {
  return *static_cast<Output*>(file);
}
const Output& of(const H5FD_t* file) {
  return *static_cast<const Output*>(file);
}

/// Onto HDF5's error stack, as a message that innermost_message() can parse.
void push(const std::string& path, const std::string& reason) noexcept {
  H5Epush2(H5E_DEFAULT, __FILE__, __func__, __LINE__, H5E_ERR_CLS, H5E_IO, H5E_WRITEERROR,
           "name = '%s', error message = '%s'", path.c_str(), reason.c_str());
}

/// Does `action` unless one has failed; keeps its failure, and tells HDF5 unless the file is being
/// closed.
template <class Action>
herr_t attempt(Output& output, Action&& action) noexcept {
  if (!output.problem->empty())
    return 0;
  try {
    action();
    return 0;
  } catch (const StorageError& error) {
    *output.problem = error.reason();
  } catch (...) {
    *output.problem = "memory allocation failed";
  }
  if (output.closing)
    return 0;
  push(output.file.path(), *output.problem);
  return -1;
}

/// Of a file that is read, also by its name: HDF5 opens the parts of virtual datasets itself.
H5FD_t* open(const char* name, unsigned, hid_t, haddr_t) {
  try {
    return new Output(next ? *std::exchange(next, std::nullopt)
                           : files::Descriptor::regular(name, O_RDONLY));
  } catch (const StorageError& error) {  // no exception may pass through HDF5
    push(name, error.reason());
  } catch (...) {
    push(name, "memory allocation failed");
  }
  return nullptr;
}

/// A close that fails after a sync adds nothing: a file that must be on the disk is synced.
herr_t close(H5FD_t* file) {
  delete &of(file);
  return 0;
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

/// Zeros after the end.
herr_t read(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t address, size_t count, void* out) {
  try {
    const std::span bytes(static_cast<std::byte*>(out), count);
    const auto got = of(file).file.read_some(static_cast<std::int64_t>(address), bytes);
    std::ranges::fill(bytes.subspan(got), std::byte{});
    return 0;
  } catch (const StorageError& error) {
    push(of(file).file.path(), error.reason());
  }
  return -1;
}

herr_t write(H5FD_t* file, H5FD_mem_t, hid_t, haddr_t address, size_t count, const void* from) {
  Output& output = of(file);
  output.end = std::max(output.end, address + count);
  return attempt(output, [&] {
    output.file.write_at(static_cast<std::int64_t>(address),
                         {static_cast<const std::byte*>(from), count});
  });
}

herr_t truncate(H5FD_t* file, hid_t, hbool_t) {
  Output& output = of(file);
  if (output.end == output.allocated)
    return 0;
  output.end = output.allocated;
  return attempt(output, [&] { output.file.rewind(static_cast<std::int64_t>(output.end)); });
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
  made.open = open;
  made.close = close;
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

/// Null for a file of another driver.
Output* output_of(hid_t file) {
  const Properties access(H5Fget_access_plist(file));
  void* found = nullptr;
  if (H5Pget_driver(access.get()) != driver() || H5Fget_vfd_handle(file, H5P_DEFAULT, &found) < 0)
    return nullptr;
  return static_cast<Output*>(found);
}

}  // namespace

Properties file_access() {
  Properties access(TRIREME_H5(H5Pcreate(H5P_FILE_ACCESS)));
  TRIREME_H5(H5Pset_driver(access.get(), driver(), nullptr));
  TRIREME_H5(H5Pset_file_locking(access.get(), false, true));
  return access;
}

File create_in(files::Descriptor file) {
  const LibraryLock lock;
  const Properties access = file_access();
  const std::string path = file.path();
  next = std::move(file);
  return File(TRIREME_H5_OF(H5I_INVALID_HID, path,
                            H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get())));
}

herr_t close_file(hid_t file) {
  const LibraryLock lock;
  detail::silence();
  if (Output* output = output_of(file))
    output->closing = true;
  return H5Fclose(file);
}

std::shared_ptr<const std::string> write_problem(const File& file) {
  const LibraryLock lock;
  Output* output = output_of(file.get());
  TRIREME_EXPECT(output != nullptr, "file {} is not being written", file.get());
  return output->problem;
}

}  // namespace trireme::h5
