// SPDX-License-Identifier: Apache-2.0
#include "h5/file.hpp"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <fcntl.h>

#if __has_include(<H5FDdevelop.h>)  // HDF5 1.14; older ones have it in hdf5.h
#include <H5FDdevelop.h>
#endif

#include "base/error.hpp"
#include "files/descriptor.hpp"

namespace trireme::h5 {
namespace {

// The HDF5 file driver (VFD) for all files. The default driver reports a failed write or close to
// HDF5. If a file cannot be closed, even one that was only read, HDF5 then crashes in MPI_Finalize
// (1.10.8 loses the file and keeps its id).
//
// 1. After a failed write nothing more is written. HDF5 sees only the first failure, and none while
//    the file is being closed, so a close always succeeds.
// 2. Writes go to the file immediately.
// 3. The result is an ordinary HDF5 file, which every driver can read.

struct Output : H5FD_t {  // HDF5 sees only the base
  explicit Output(files::Descriptor opened)
      : H5FD_t{}, file(std::move(opened)), end(static_cast<haddr_t>(file.size())) {}

  files::Descriptor file;
  std::shared_ptr<std::string> problem = std::make_shared<std::string>();
  haddr_t end;            ///< the size as HDF5 sees it
  haddr_t allocated = 0;  ///< the allocated size (EOA), set by HDF5
  bool closing = false;
};

/// The new file for the next call of open(); guarded by the LibraryLock.
std::optional<files::Descriptor> next;

Output& of(H5FD_t* file) {
  return *static_cast<Output*>(file);
}
const Output& of(const H5FD_t* file) {
  return *static_cast<const Output*>(file);
}

/// Pushes a message onto HDF5's error stack.
void push(const std::string& path, const std::string& reason) noexcept {
  H5Epush2(H5E_DEFAULT, __FILE__, __func__, __LINE__, H5E_ERR_CLS, H5E_IO, H5E_WRITEERROR,
           "%c%s: %s", detail::by_system, reason.c_str(), path.c_str());
}

/// Runs `action` unless an earlier one failed. Records a failure, and reports it to HDF5 unless the
/// file is being closed.
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

/// Opens `next`, or else `name` for reading: HDF5 opens the source files of virtual datasets.
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

/// Ignores errors of close(2): files that must be on disk are synced before.
herr_t close(H5FD_t* file) {
  delete &of(file);
  return 0;
}

herr_t query(const H5FD_t*, unsigned long* flags) {
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
           H5FD_FEAT_AGGREGATE_SMALLDATA | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
  return 0;
}

herr_t set_allocated(H5FD_t* file, H5FD_mem_t, haddr_t end) {
  of(file).allocated = end;
  return 0;
}
herr_t handle(H5FD_t* file, hid_t, void** out) {
  *out = &of(file);
  return 0;
}

/// Bytes after the end of the file read as zeros.
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
  made.get_eoa = [](const H5FD_t* file, H5FD_mem_t) { return of(file).allocated; };
  made.set_eoa = set_allocated;
  made.get_eof = [](const H5FD_t* file, H5FD_mem_t) { return of(file).end; };
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

/// Null if the file has another driver.
Output* output_of(hid_t file) {
  const Properties access(H5Fget_access_plist(file));
  void* found = nullptr;
  if (H5Pget_driver(access.get()) != driver() || H5Fget_vfd_handle(file, H5P_DEFAULT, &found) < 0)
    return nullptr;
  return static_cast<Output*>(found);
}

/// Properties for H5Fopen, for reading only.
Properties file_access() {
  Properties access(TRIREME_H5(H5Pcreate(H5P_FILE_ACCESS)));
  TRIREME_H5(H5Pset_driver(access.get(), driver(), nullptr));
  TRIREME_H5(H5Pset_file_locking(access.get(), false, true));
  return access;
}

/// HDF5 1.10.8 crashes if it cannot allocate its own blocks (H5FL_blk_malloc, H5AC_create). Throws
/// std::bad_alloc unless enough memory is left for them.
void expect_memory() {
  constexpr std::size_t needed = std::size_t{16} << 20U;
  const std::unique_ptr<std::byte[]> asked(new std::byte[needed]);
  asm volatile("" : : "g"(asked.get()) : "memory");  // keeps the unused allocation
}

/// How the dataset's storage refers to other files, or "". Reads no data.
std::string storage_outside(hid_t dataset) {
  const Properties creation(TRIREME_H5(H5Dget_create_plist(dataset)));
  if (TRIREME_H5(H5Pget_external_count(creation.get())) > 0)
    return "keeps its data in another file";
  std::size_t pieces = 0;
  if (TRIREME_H5(H5Pget_layout(creation.get())) == H5D_VIRTUAL)
    TRIREME_H5(H5Pget_virtual_count(creation.get(), &pieces));
  for (std::size_t i = 0; i < pieces; ++i) {
    const auto length = TRIREME_H5(H5Pget_virtual_filename(creation.get(), i, nullptr, 0));
    std::string name(static_cast<std::size_t>(length), '\0');
    TRIREME_H5(H5Pget_virtual_filename(creation.get(), i, name.data(), name.size() + 1));
    if (name.empty() || name == ".." || name.find('/') != std::string::npos)
      return "is a view of the file " + name;
  }
  return "";
}

struct Found {
  std::string problem;
  std::exception_ptr failed;
};

/// Callback of H5Lvisit. No exception may pass through HDF5.
herr_t look(hid_t group, const char* name, const H5L_info_t* link, void* out) noexcept {
  auto& found = *static_cast<Found*>(out);
  try {
    std::string problem;
    if (link->type >= H5L_TYPE_UD_MIN) {
      problem = "is a link to another file";
    } else if (link->type == H5L_TYPE_HARD) {
      const Object object(TRIREME_H5_OF(group, name, H5Oopen(group, name, H5P_DEFAULT)));
      if (H5Iget_type(object.get()) == H5I_DATASET)
        problem = storage_outside(object.get());
    }
    if (!problem.empty())
      found.problem = fmt::format("/{} {}", name, problem);
  } catch (...) {
    found.failed = std::current_exception();
  }
  return found.failed || !found.problem.empty() ? 1 : 0;
}

}  // namespace

File create_file(const std::string& path) {
  expect_memory();
  const LibraryLock lock;
  const Properties access = file_access();
  next = files::Descriptor(path, O_RDWR | O_CREAT | O_EXCL);
  return File(TRIREME_H5_OF(H5I_INVALID_HID, path,
                            H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get())));
}

File open_file(const std::string& path) {
  expect_memory();
  const files::InputFile regular(path);  // refuses anything but a regular file
  const Properties access = file_access();
  File file(
      TRIREME_H5_OF(H5I_INVALID_HID, path, H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get())));
  Found found;
  TRIREME_H5_OF(file.get(), "", H5Lvisit(file.get(), H5_INDEX_NAME, H5_ITER_NATIVE, look, &found));
  if (found.failed)
    std::rethrow_exception(found.failed);
  if (!found.problem.empty())
    throw DamagedError("HDF5", "opening " + path, "refused: " + found.problem);
  return file;
}

herr_t close_file(hid_t file) {
  const LibraryLock lock;
  detail::silence();
  if (Output* output = output_of(file))
    output->closing = true;
  return H5Fclose(file);
}

void close(File file) {
  TRIREME_H5_OF(file.get(), "", H5Fflush(file.get(), H5F_SCOPE_GLOBAL));
  const std::string what = detail::about("H5Fclose", file.get(), "");
  std::shared_ptr<const std::string> problem;  // must outlive the file
  {
    const LibraryLock lock;
    const Output* output = output_of(file.get());
    TRIREME_EXPECT(output != nullptr, "file {} is not being written", file.get());
    problem = output->problem;
  }
  close_file(file.release());
  if (!problem->empty())
    throw StorageError("HDF5", what, *problem);
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
