// SPDX-License-Identifier: Apache-2.0
// The message of the StorageError that an action throws.
#pragma once

#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace trireme::files {

inline std::string storage_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const StorageError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no StorageError";
  return {};
}

}  // namespace trireme::files
