// SPDX-License-Identifier: Apache-2.0
// For tests that need a GPU: without one they are skipped with a message, and with
// TRIREME_REQUIRE_CUDA=1 they fail.
#pragma once

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "device/device.hpp"

namespace trireme::test {

/// Why there is no GPU; empty when there is one.
inline const std::string& why_no_gpu() {
  static const std::string why = device::count_cuda_devices().why_none;
  return why;
}

inline bool gpu_is_required() {
  const char* required = std::getenv("TRIREME_REQUIRE_CUDA");
  return required != nullptr && std::string(required) == "1";
}

}  // namespace trireme::test

/// The first statement of a test, or of its SetUp().
#define TRIREME_NEEDS_GPU()                          \
  do {                                               \
    if (!::trireme::test::why_no_gpu().empty()) {    \
      if (::trireme::test::gpu_is_required())        \
        FAIL() << ::trireme::test::why_no_gpu();     \
      GTEST_SKIP() << ::trireme::test::why_no_gpu(); \
    }                                                \
  } while (false)
