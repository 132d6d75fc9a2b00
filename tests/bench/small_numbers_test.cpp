// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "device/device.hpp"

#include "bench/race.hpp"

namespace trireme::test {
namespace {

std::vector<float> drawn(DType dtype, std::int64_t elements) {
  const auto device = device::make_cpu_device(1);
  const auto stream = device->make_stream(device::StreamMode::inlined, "test");
  const auto buffer =
      device->allocate(static_cast<std::size_t>(elements) * size_bytes(dtype), "test");
  bench::fill_small_numbers(buffer.view(dtype, 0, elements), *stream);
  std::vector<float> values(static_cast<std::size_t>(elements));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = dtype == DType::bf16
                    ? static_cast<float>(reinterpret_cast<const Bf16*>(buffer.data())[i])
                    : reinterpret_cast<const float*>(buffer.data())[i];
  return values;
}

/// Only the first elements are drawn, fewer than 10 million; the others are copies of them.
TEST(SmallNumbers, FillEveryElementOfBothTypes) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t elements : {1, 1000, 10'000'003}) {
      const auto values = drawn(dtype, elements);
      EXPECT_TRUE(std::ranges::all_of(values, [](float value) { return std::abs(value) <= 0.25F; }))
          << elements;
      EXPECT_LT(std::ranges::count(values, 0.0F), 10) << elements;
      EXPECT_EQ(values, drawn(dtype, elements));
    }
}

TEST(SmallNumbers, DifferBetweenTheRowsOfAMatrix) {
  const auto values = drawn(DType::f32, 1 << 24);
  std::set<float> starts;
  for (std::size_t row = 0; row < 4096; ++row) starts.insert(values[row * 4096]);
  EXPECT_GT(starts.size(), 4000U);
}

}  // namespace
}  // namespace trireme::test
