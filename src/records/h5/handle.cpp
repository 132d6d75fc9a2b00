// SPDX-License-Identifier: Apache-2.0
#include "h5/handle.hpp"

#include <cstddef>

namespace trireme::h5 {
namespace {

herr_t take_innermost(unsigned depth, const H5E_error2_t* error, void* out) {
  if (depth == 0 && error->desc != nullptr)
    *static_cast<std::string*>(out) = error->desc;
  return 0;
}

std::recursive_mutex& library_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

}  // namespace

LibraryLock::LibraryLock() : lock_guard(library_mutex()) {}

std::string innermost_message() {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_innermost, &text);
  return text.empty() ? "no reason given" : text;
}

namespace detail {

void silence() noexcept {
  // Must precede the library's initialization; later calls have no effect. The exit handler crashes
  // if a file could not be closed, and it is not needed because owners close all objects.
  H5dont_atexit();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

void fail(const std::string& statement, const std::string& reason, const char* file, int line) {
  if (reason.starts_with(by_system))
    throw StorageError("HDF5", statement, reason.substr(1), file, line);
  if (reason.find("memory allocation failed") != std::string::npos)
    throw StorageError("HDF5", statement, reason, file, line);
  throw DamagedError("HDF5", statement, reason, file, line);
}

std::string about(const char* call, hid_t object, const std::string& name) {
  const LibraryLock lock;
  const auto ask = [](auto get) {
    const auto length = get(nullptr, 0);
    std::string text(length > 0 ? static_cast<std::size_t>(length) + 1 : 1, '\0');
    get(text.data(), text.size());
    text.pop_back();
    return text;
  };
  std::string path =
      ask([&](char* text, std::size_t size) { return H5Iget_name(object, text, size); });
  const std::string file =
      ask([&](char* text, std::size_t size) { return H5Fget_name(object, text, size); });
  if (!name.empty())
    path += (path.empty() || path.ends_with('/') ? "" : "/") + name;
  const std::string words(call);
  return words.substr(0, words.find('(')) + " of " + (path.empty() ? "an object" : path) +
         (file.empty() ? "" : " in " + file);
}

}  // namespace detail
}  // namespace trireme::h5
