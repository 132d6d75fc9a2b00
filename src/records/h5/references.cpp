// SPDX-License-Identifier: Apache-2.0
#include "h5/references.hpp"

#include <cstddef>

#include "h5/handle.hpp"

namespace trireme::h5 {
namespace {

/// A name without a path: a file in the directory of the one that names it.
bool is_in_same_directory(const std::string& file) {
  return !file.empty() && file != ".." && file.find('/') == std::string::npos;
}

/// A call of HDF5 that failed: HDF5's message, before it is gone.
struct Unreadable {
  std::string reason = innermost_message();
};

/// What is wrong with the dataset's storage, or "". No call here reads data.
std::string storage_outside(hid_t dataset) {
  const Properties creation(H5Dget_create_plist(dataset));
  if (creation.get() < 0)
    throw Unreadable{};
  if (H5Pget_external_count(creation.get()) > 0)
    return "keeps its data in another file";
  if (H5Pget_layout(creation.get()) != H5D_VIRTUAL)
    return "";
  std::size_t pieces = 0;
  if (H5Pget_virtual_count(creation.get(), &pieces) < 0)
    throw Unreadable{};
  for (std::size_t i = 0; i < pieces; ++i) {
    const auto length = H5Pget_virtual_filename(creation.get(), i, nullptr, 0);
    if (length < 0)
      throw Unreadable{};
    std::string name(static_cast<std::size_t>(length) + 1, '\0');
    H5Pget_virtual_filename(creation.get(), i, name.data(), name.size());
    name.resize(static_cast<std::size_t>(length));
    if (!is_in_same_directory(name))
      return "is a view of the file " + name;
  }
  return "";
}

unsigned names_of(hid_t object) {
#if H5_VERSION_GE(1, 12, 0)
  H5O_info2_t facts{};
  const herr_t result = H5Oget_info3(object, &facts, H5O_INFO_BASIC);
#else
  H5O_info_t facts{};
  const herr_t result = H5Oget_info2(object, &facts, H5O_INFO_BASIC);
#endif
  if (result < 0)
    throw Unreadable{};
  return facts.rc;
}

std::string target_of(hid_t group, const char* name, std::size_t size) {
  std::string value(size + 1, '\0');
  const char *file = nullptr, *object = nullptr;
  unsigned flags = 0;
  if (H5Lget_val(group, name, value.data(), value.size(), H5P_DEFAULT) < 0 ||
      H5Lunpack_elink_val(value.data(), size, &flags, &file, &object) < 0)
    return "another file";
  return std::string("the file ") + file;
}

struct Found {
  std::string problem;
  std::string reason;  ///< why it could not be looked through
};

/// H5Lvisit's callback: no exception may pass through it.
herr_t look(hid_t group, const char* name, const H5L_info_t* link, void* out) {
  auto& found = *static_cast<Found*>(out);
  try {
    std::string problem;
    if (link->type == H5L_TYPE_EXTERNAL) {
      problem = "is a link to " + target_of(group, name, link->u.val_size);
    } else if (link->type >= H5L_TYPE_UD_MIN) {
      problem = "is a link of an unknown kind";
    } else if (link->type == H5L_TYPE_HARD) {
      const Object object(H5Oopen(group, name, H5P_DEFAULT));
      if (object.get() < 0)
        throw Unreadable{};
      if (names_of(object.get()) > 1)
        problem = "has several names";
      else if (H5Iget_type(object.get()) == H5I_DATASET)
        problem = storage_outside(object.get());
    } else if (link->type == H5L_TYPE_SOFT) {
      problem = "is a link to another object";
    }
    if (problem.empty())
      return 0;
    found.problem = std::string("/") + name + " " + problem;
  } catch (const Unreadable& unreadable) {
    found.reason = unreadable.reason;
  } catch (...) {
    found.reason = "memory allocation failed";
  }
  return 1;  // enough
}

}  // namespace

std::string leads_outside(hid_t file) {
  const LibraryLock lock;
  detail::silence();
  Found found;
  if (H5Lvisit(file, H5_INDEX_NAME, H5_ITER_NATIVE, look, &found) < 0)
    found.reason = innermost_message();
  if (!found.reason.empty())
    detail::fail(detail::about("looking through", file, ""), found.reason, __FILE__, __LINE__);
  return found.problem;
}

}  // namespace trireme::h5
