// SPDX-License-Identifier: Apache-2.0
#include "record/run/move_aside.hpp"

#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "base/error.hpp"

namespace trireme::record {

std::string move_aside(const std::string& path, const char* why) {
  std::string aside;
  const auto taken = [](const std::string& name) {  // a link that leads nowhere is a file as well
    return std::filesystem::exists(std::filesystem::symlink_status(name));
  };
  for (int number = 1; aside.empty() || taken(aside); ++number)
    aside = fmt::format("{}.{}-{}", path, why, number);
  std::error_code problem;
  std::filesystem::rename(path, aside, problem);
  if (problem)
    throw StorageError("file system", "rename " + path + " to " + aside, problem.message(),
                       __FILE__, __LINE__);
  return aside;
}

}  // namespace trireme::record
