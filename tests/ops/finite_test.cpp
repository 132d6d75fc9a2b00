// SPDX-License-Identifier: Apache-2.0
#include "ops/finite.hpp"

#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace trireme::ops {
namespace {

std::int64_t find(const std::vector<float>& values) {
  const auto device = device::make_cpu_device(1);
  const auto stream = device->make_stream(device::StreamMode::inlined, "compute");
  std::int64_t first = -2;
  find_not_finite(first, view_of(values.data(), static_cast<std::int64_t>(values.size())), *stream);
  return first;
}

TEST(FindNotFinite, IsMinusOneWhereAllIsFinite) {
  EXPECT_EQ(find({}), -1);
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(find({0.0F, -0.0F, largest, -largest, std::numeric_limits<float>::denorm_min()}), -1);
  EXPECT_EQ(find(std::vector<float>(70'001, -1.0F)), -1);
}

TEST(FindNotFinite, GivesTheFirstElementAtEveryPlace) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float poison : {nan, -nan, infinity, -infinity})
    for (const std::int64_t place : {0, 1, 15, 16, 16'383, 16'384, 50'000}) {
      std::vector<float> values(50'001, 3.0F);
      values[static_cast<std::size_t>(place)] = poison;
      values.back() = poison;
      EXPECT_EQ(find(values), place);
    }
}

}  // namespace
}  // namespace trireme::ops
