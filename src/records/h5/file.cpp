// SPDX-License-Identifier: Apache-2.0
#include "h5/file.hpp"

#include <cstddef>
#include <exception>
#include <memory>

#include <fcntl.h>

#include "base/error.hpp"
#include "files/descriptor.hpp"
#include "files/input_file.hpp"

#include "h5/driver.hpp"

namespace trireme::h5 {
namespace {

/// HDF5 1.10.8 crashes where it gets no memory for its own blocks (H5FL_blk_malloc, H5AC_create).
/// With that much left it does not crash; else this throws std::bad_alloc.
void expect_memory() {
  constexpr std::size_t needed = std::size_t{16} << 20U;
  const std::unique_ptr<std::byte[]> asked(new std::byte[needed]);
  asm volatile("" : : "g"(asked.get()) : "memory");  // asked for although it is not used
}

/// How the dataset's storage leads to other files, or "". No call here reads data.
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

/// H5Lvisit's callback: no exception may pass through it.
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
  return create_in(files::Descriptor(path, O_RDWR | O_CREAT | O_EXCL));
}

File open_file(const std::string& path) {
  expect_memory();
  const files::InputFile regular(path);  // says what is in the place of a file
  const Properties access = file_access();
  File file(
      TRIREME_H5_OF(H5I_INVALID_HID, path, H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get())));
  Found found;
  TRIREME_H5_OF(file.get(), "", H5Lvisit(file.get(), H5_INDEX_NAME, H5_ITER_NATIVE, look, &found));
  if (found.failed)
    std::rethrow_exception(found.failed);
  if (!found.problem.empty())
    throw DamagedError("HDF5", "opening " + path, "refused: " + found.problem, __FILE__, __LINE__);
  return file;
}

void close(File file) {
  TRIREME_H5_OF(file.get(), "", H5Fflush(file.get(), H5F_SCOPE_GLOBAL));
  const std::string what = detail::about("H5Fclose", file.get(), "");
  const auto problem = write_problem(file);
  close_file(file.release());
  if (!problem->empty())
    throw StorageError("HDF5", what, *problem, __FILE__, __LINE__);
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
