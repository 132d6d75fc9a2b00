// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/byte_range_set.hpp"

#include <array>
#include <cstddef>
#include <random>
#include <utility>

#include <gtest/gtest.h>

namespace trireme::comm {
namespace {

TEST(ByteRangeSet, CountsEachByteOnce) {
  std::array<std::byte, 100> memory{};
  ByteRangeSet ranges;
  EXPECT_EQ(ranges.add(memory.data() + 10, 10), 10U);
  EXPECT_EQ(ranges.add(memory.data() + 10, 10), 0U);
  EXPECT_EQ(ranges.add(memory.data() + 12, 3), 0U);
  EXPECT_EQ(ranges.add(memory.data() + 5, 10), 5U);
  EXPECT_EQ(ranges.add(memory.data() + 40, 10), 10U);
  EXPECT_EQ(ranges.add(memory.data() + 20, 20), 20U) << "between two ranges of the set";
  EXPECT_EQ(ranges.add(memory.data(), 100), 55U);
  EXPECT_EQ(ranges.add(memory.data() + 99, 1), 0U);
}

TEST(ByteRangeSet, AgreesWithAMapOfBytes) {
  std::array<std::byte, 200> memory{};
  std::mt19937 random(7);  // NOLINT: the same pieces every time
  for (int round = 0; round < 50; ++round) {
    ByteRangeSet ranges;
    std::array<bool, 200> known{};
    for (int piece = 0; piece < 12; ++piece) {
      const std::size_t begin = random() % 200, bytes = 1 + random() % (200 - begin);
      std::size_t fresh = 0;
      for (std::size_t i = begin; i < begin + bytes; ++i)
        fresh += std::exchange(known[i], true) ? 0 : 1;
      ASSERT_EQ(ranges.add(memory.data() + begin, bytes), fresh);
    }
  }
}

}  // namespace
}  // namespace trireme::comm
