// SPDX-License-Identifier: Apache-2.0
#include "deck/value.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "deck/value_range.hpp"

namespace trireme::deck {
namespace {

Node word_node(const std::string& word) {
  Node node;
  node.kind = Node::Kind::word;
  node.word = word;
  return node;
}

TEST(Value, NumbersComeBackToTheSameBits) {
  std::mt19937_64 random(7);  // NOLINT: the same numbers every time
  for (int round = 0; round < 20000; ++round) {
    const std::uint64_t bits = random();
    double number = 0;
    std::memcpy(&number, &bits, sizeof number);
    if (!std::isfinite(number))
      continue;
    double again = 0;
    ASSERT_FALSE(decode(word_node(yaml_text(number)), again).has_value()) << yaml_text(number);
    std::uint64_t again_bits = 0;
    std::memcpy(&again_bits, &again, sizeof again);
    ASSERT_EQ(again_bits, bits) << yaml_text(number);
    Duration duration;
    if (number >= 0) {
      ASSERT_FALSE(decode(word_node(yaml_text(Duration{number})), duration).has_value());
      ASSERT_EQ(duration.seconds, number);
    }
  }
}

TEST(Value, WholeSecondsReadAsClockTimes) {
  EXPECT_EQ(yaml_text(Duration{5405}), "1:30:05");
  EXPECT_EQ(yaml_text(Duration{0.5}), "0.5");
  for (double seconds = 0; seconds < 1e9; seconds = seconds * 1.7 + 1) {
    const double whole = std::floor(seconds);
    Duration again;
    ASSERT_FALSE(decode(word_node(yaml_text(Duration{whole})), again).has_value());
    EXPECT_EQ(again.seconds, whole);
  }
}

TEST(Value, IntegersReachTheirLimits) {
  for (const std::int64_t number :
       {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max(),
        std::int64_t{0}, std::int64_t{-1}}) {
    std::int64_t again = 1;
    EXPECT_FALSE(decode(word_node(yaml_text(number)), again).has_value());
    EXPECT_EQ(again, number);
  }
  std::int64_t untouched = 5;
  EXPECT_TRUE(decode(word_node("9223372036854775808"), untouched).has_value());
  EXPECT_TRUE(decode(word_node(""), untouched).has_value());
  EXPECT_TRUE(decode(word_node("+"), untouched).has_value());
  EXPECT_TRUE(decode(word_node("- 1"), untouched).has_value());
  EXPECT_EQ(untouched, 5) << "a refused word leaves the value alone";
  EXPECT_FALSE(decode(word_node("+5"), untouched).has_value());
}

TEST(Value, BytesComeBackAndHaveUnits) {
  EXPECT_EQ(yaml_text(Bytes{std::int64_t{60} << 30U}), "60 GiB");
  EXPECT_EQ(yaml_text(Bytes{1536}), "1536");
  EXPECT_EQ(yaml_text(Bytes{3 << 10U}), "3 KiB");
  const auto read = [](const std::string& word) {
    Bytes bytes{-7};
    const Problem problem = decode(word_node(word), bytes);
    EXPECT_EQ(problem.has_value(), bytes.count == -7) << word;
    return bytes.count;
  };
  EXPECT_EQ(read("60 GiB"), std::int64_t{60} << 30U);
  EXPECT_EQ(read("1.5 KiB"), 1536);
  EXPECT_EQ(read("512MiB"), 512 << 20U);
  EXPECT_EQ(read("2 TiB"), std::int64_t{2} << 40U);
  EXPECT_EQ(read("12345"), 12345);
  EXPECT_EQ(read("12345 B"), 12345);
  EXPECT_EQ(read("1e9"), 1'000'000'000);
  for (const char* word : {"", "0", "-1", "60 GB", "60 gib", "GiB", "0.3 KiB", "1e300", "9e15 TiB",
                           "nan", "010", "60 GiB of it", "60  G iB"})
    EXPECT_EQ(read(word), -7) << word;
  for (std::int64_t count = 1; count < std::int64_t{1} << 53U; count += 1 + count / 3)
    EXPECT_EQ(read(yaml_text(Bytes{count})), count);
}

TEST(Range, CountsNotANumberAsOutside) {
  const Key<double> closed{.min = 0.0, .max = 1.0};
  const Key<double> open{.min = 0.0, .max = 1.0, .above_min = true, .below_max = true};
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(in_range(nan, closed));
  EXPECT_FALSE(in_range(nan, Key<double>{.min = 0.0}));
  EXPECT_FALSE(in_range(nan, Key<double>{.max = 0.0}));
  EXPECT_TRUE(in_range(0.0, closed) && in_range(1.0, closed));
  EXPECT_FALSE(in_range(0.0, open) || in_range(1.0, open));
  EXPECT_EQ(range_text(closed), "[0, 1]");
  EXPECT_EQ(range_text(open), "(0, 1)");
  EXPECT_EQ(range_text(Key<double>{.min = 0.0}), "[0, inf)");
  EXPECT_EQ(range_text(Key<double>{}), "");
}

}  // namespace
}  // namespace trireme::deck
