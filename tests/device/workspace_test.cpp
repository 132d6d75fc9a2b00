// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/workspace.hpp"

#include <cstring>
#include <memory>

#include <gtest/gtest.h>

#include "device/cpu/cpu_stream.hpp"

namespace trireme::device::cpu {
namespace {

TEST(Workspace, IsAsLargeAsTheLargestRequest) {
  const auto device = make_cpu_device(1);
  Workspace workspace(*device);
  workspace.reserve({.shared = 10000, .per_thread = 100, .threads = 2});
  workspace.reserve({.shared = 100, .per_thread = 20000, .threads = 3});
  std::memset(workspace.shared(), 1, 10000);
  for (int thread = 0; thread < 3; ++thread) std::memset(workspace.of_thread(thread), 2, 20000);
  for (int i = 0; i < 10000; ++i) ASSERT_EQ(workspace.shared()[i], std::byte{1}) << i;
  EXPECT_GE(workspace.of_thread(0), workspace.shared() + 10000);
  EXPECT_GE(workspace.of_thread(2), workspace.of_thread(1) + 20000);
}

TEST(Workspace, DoesNotMoveWhenLessIsReserved) {
  const auto device = make_cpu_device(1);
  const auto stream = device->make_stream(StreamMode::inlined, "test");
  Workspace& workspace = stream_of(*stream).workspace();
  workspace.reserve({.shared = 10000, .per_thread = 5000, .threads = 2});
  const std::byte* shared = workspace.shared();
  const std::byte* own = workspace.of_thread(1);
  workspace.reserve({.shared = 20, .per_thread = 5000, .threads = 1});
  EXPECT_EQ(workspace.shared(), shared);
  EXPECT_EQ(workspace.of_thread(1), own);
}

}  // namespace
}  // namespace trireme::device::cpu
