// SPDX-License-Identifier: Apache-2.0
// A separate directory for each test, with helpers to write files and catch errors.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace trireme::tokens {

class Scratch : public testing::Test {
 protected:
  Scratch() {
    std::string name = testing::TempDir() + "trireme-data-XXXXXX";
    directory_ = ::mkdtemp(name.data());
    std::filesystem::permissions(directory_, std::filesystem::perms(0755));
  }
  ~Scratch() override { std::filesystem::remove_all(directory_); }

  [[nodiscard]] std::string at(std::string_view name) const { return (directory_ / name).string(); }
  /// Creates parent directories too.
  std::string write(std::string_view name, std::string_view content) const {
    const auto path = directory_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
    return path.string();
  }
  static std::string content(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  /// The lines of the UserError that `action` throws.
  static std::string user_error(const std::function<void()>& action) {
    try {
      action();
    } catch (const UserError& error) {
      return error.what();
    }
    ADD_FAILURE() << "no UserError";
    return {};
  }
  /// The message of the StorageError that `action` throws.
  static std::string storage_error(const std::function<void()>& action) {
    try {
      action();
    } catch (const StorageError& error) {
      return error.what();
    }
    ADD_FAILURE() << "no StorageError";
    return {};
  }

  std::filesystem::path directory_;
};

}  // namespace trireme::tokens
