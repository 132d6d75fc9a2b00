// SPDX-License-Identifier: Apache-2.0
#include "h5/handle.hpp"

#include <cstdio>
#include <mutex>

#include "base/error.hpp"

namespace trireme::h5 {
namespace {

/// HDF5 puts the file name and the system's words into its message among clocks and pointers; those
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
  return file.empty() ? reason : reason + ": " + file;
}

herr_t take_innermost(unsigned depth, const H5E_error2_t* error, void* out) {
  if (depth == 0 && error->desc != nullptr)
    *static_cast<std::string*>(out) = error->desc;
  return 0;
}

std::recursive_mutex& turns() {
  static std::recursive_mutex mutex;
  return mutex;
}

}  // namespace

Turn::Turn() {
  turns().lock();
}
Turn::~Turn() {
  turns().unlock();
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

void report_failed_close(const char* function) noexcept {
  std::fprintf(stderr, "warning: %s failed\n", function);
}

void fail(const char* statement, const char* file, int line) {
  throw StorageError("HDF5", statement, innermost_message(), file, line);
}

}  // namespace detail
}  // namespace trireme::h5
