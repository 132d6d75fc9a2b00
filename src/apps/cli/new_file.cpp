// SPDX-License-Identifier: Apache-2.0
#include "cli/new_file.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/error.hpp"

#include "cli/verb.hpp"

namespace trireme::cli {

void expect_new_file(const std::string& path) {
  if (!path.empty() && path != "-" &&
      std::filesystem::exists(std::filesystem::symlink_status(path)))
    throw UserError(Place{path, 0, 0}, "this file exists already; it is not overwritten");
}

void write_new_file(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "wbx");
  if (file == nullptr && errno == EEXIST)
    throw UserError(Place{path, 0, 0}, "this file exists already; it is not overwritten");
  const bool written =
      file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const int reason = errno;
  const bool closed = file != nullptr && std::fclose(file) == 0;
  if (!written || !closed)
    throw StorageError("file system", "write " + path, std::strerror(written ? errno : reason),
                       __FILE__, __LINE__);
}

void give_result(const std::string& text, const std::string& path, const std::string& json) {
  print(path == "-" ? json : text);
  if (!path.empty() && path != "-")
    write_new_file(path, json);
}

}  // namespace trireme::cli
