// SPDX-License-Identifier: Apache-2.0
// The operations linked with src/compute/ops/cpu/onednn/without_onednn.cpp instead of oneDNN, as in
// a build with TRIREME_ONEDNN=OFF.
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

#include "ops/cpu/onednn/library_matmul.hpp"
#include "ops/matmul.hpp"

namespace trireme::test {
namespace {

constexpr ops::MatmulShape product{.m = 2, .n = 2, .k = 3};

View view_of(std::vector<float>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), static_cast<std::int64_t>(values.size()),
          DType::f32};
}

TEST(WithoutOnednn, StatesThatItIsMissing) {
  EXPECT_FALSE(ops::library_multiplies(DType::f32));
  EXPECT_STREQ(ops::onednn_version(), "not in this build");
}

TEST(WithoutOnednn, Multiplies) {
  const auto device = device::make_cpu_device(1);
  EXPECT_EQ(ops::product_library(*device), "trireme");
  std::vector<float> a{1, 2, 3, 4, 5, 6}, b{1, 0, 0, 1, 1, 1}, c(4);
  const auto stream = device->make_stream(device::StreamMode::inlined, "test");
  ops::Matmul(*device, product)({.a = view_of(a), .b = view_of(b), .c = view_of(c)}, *stream);
  EXPECT_THAT(c, testing::ElementsAre(4, 5, 10, 11));
}

TEST(WithoutOnednn, HasNothingToMeasureBeside) {
  const auto device = device::make_cpu_device(1);
  std::vector<float> b(6);
  EXPECT_THROW(ops::make_library_matmul(*device, product, false, view_of(b)), DeviceError);
}

}  // namespace
}  // namespace trireme::test
