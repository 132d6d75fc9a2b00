// SPDX-License-Identifier: Apache-2.0
#include "h5/handle.hpp"

#include <cstddef>

namespace trireme::h5 {
namespace {

/// Marks the system's messages among HDF5's own, until they are reported.
constexpr const char* by_system = "\x01";
std::string without_mark(const std::string& reason) {
  return reason.starts_with(by_system) ? reason.substr(1) : reason;
}

/// HDF5 puts the file name and the system's message into its own among clocks and pointers; those
/// two are what a reader needs.
std::string concise(const std::string& text) {
  const auto quoted = [&](const std::string& key) {
    const auto at = text.find(key + " = '");
    if (at == std::string::npos)
      return std::string();
    const auto begin = at + key.size() + 4;
    return text.substr(begin, text.find('\'', begin) - begin);
  };
  const std::string reason = quoted("error message");
  if (reason.empty())
    return text;
  const std::string file = quoted("name");
  return by_system + (file.empty() ? reason : reason + ": " + file);
}

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

bool is_the_systems(const std::string& message) {
  return message.starts_with(by_system) ||
         message.find("memory allocation failed") != std::string::npos;
}

std::string innermost_message() {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_innermost, &text);
  return text.empty() ? "no reason given" : concise(text);
}

namespace detail {

void silence() noexcept {
  // Before the library starts itself (later calls change nothing): its exit handler crashes when a
  // file could not be closed, and owners leave it nothing to do.
  H5dont_atexit();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

void fail(const std::string& statement, const std::string& reason, const char* file, int line) {
  if (is_the_systems(reason))
    throw StorageError("HDF5", statement, without_mark(reason), file, line);
  throw DamagedError("HDF5", statement, without_mark(reason), file, line);
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
