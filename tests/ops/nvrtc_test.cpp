// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/nvrtc.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::ops {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

TEST(Nvrtc, OfTheToolkitHasItsMajorVersion) {
  EXPECT_THAT(nvrtc_library(), StartsWith("libnvrtc.so.1"));
}

TEST(Nvrtc, ThatIsMissingIsNamedWithTheWayOut) {
  EXPECT_THAT(
      nvrtc_problem("libnvrtc-absent.so.1"),
      AllOf(HasSubstr("libnvrtc-absent.so.1 cannot be opened"), HasSubstr("LD_LIBRARY_PATH")));
}

TEST(Nvrtc, IsNotJustAnyLibrary) {
  EXPECT_THAT(nvrtc_problem("libc.so.6"), HasSubstr("libc.so.6 is not it"));
}

}  // namespace
}  // namespace trireme::ops
