// SPDX-License-Identifier: Apache-2.0
#include "base/dtype.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace trireme {
namespace {

float from_bits(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}

TEST(Bf16Test, KeepsWhatItCanHold) {
  for (const float exact : {0.0F, 1.0F, -2.0F, 0.5F, 384.0F, 0x1.fep127F, 0x1p-126F, 0x1p-133F})
    EXPECT_EQ(static_cast<float>(Bf16(exact)), exact) << exact;
  EXPECT_EQ(Bf16(-0.0F).bits, 0x8000);
}

TEST(Bf16Test, RoundsToNearestAndTiesToEven) {
  // 1 + 2^-8 is half-way from 1 to 1 + 2^-7; 1 + 3·2^-8 is half-way between odd and even.
  EXPECT_EQ(static_cast<float>(Bf16(1.0F + 0x1p-8F)), 1.0F);
  EXPECT_EQ(static_cast<float>(Bf16(1.0F + 0x1.8p-7F)), 1.0F + 0x1p-6F);
  EXPECT_EQ(static_cast<float>(Bf16(1.0F + 0x1p-8F + 0x1p-23F)), 1.0F + 0x1p-7F);
  EXPECT_EQ(static_cast<float>(Bf16(-1.0F - 0x1p-8F - 0x1p-23F)), -1.0F - 0x1p-7F);
}

TEST(Bf16Test, OverflowsToInfinityAndKeepsInfinity) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(static_cast<float>(Bf16(std::numeric_limits<float>::max())), infinity);
  EXPECT_EQ(static_cast<float>(Bf16(-std::numeric_limits<float>::max())), -infinity);
  EXPECT_EQ(static_cast<float>(Bf16(infinity)), infinity);
  EXPECT_EQ(static_cast<float>(Bf16(-infinity)), -infinity);
}

TEST(Bf16Test, EveryNanStaysNan) {
  // Truncation would drop a payload in the lower half, and rounding would carry into the sign bit.
  for (const std::uint32_t bits : {0x7f800001U, 0x7fc00000U, 0x7fffffffU, 0xff800001U, 0xffffffffU})
    EXPECT_TRUE(std::isnan(static_cast<float>(Bf16(from_bits(bits))))) << std::hex << bits;
  EXPECT_EQ(Bf16(from_bits(0xff800001U)).bits & 0x8000U, 0x8000U);
}

TEST(Bf16Test, EveryStoredValueSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const float value = from_bits(bits << 16U);
    if (std::isnan(value))
      EXPECT_TRUE(std::isnan(static_cast<float>(Bf16(value))));
    else
      ASSERT_EQ(Bf16(value).bits, bits);
  }
}

TEST(DTypeTest, SizesAndNamesBelongToTheTypes) {
  EXPECT_EQ(size_bytes(DTypeOf<float>::value), sizeof(float));
  EXPECT_EQ(size_bytes(DTypeOf<Bf16>::value), sizeof(Bf16));
  EXPECT_EQ(size_bytes(DTypeOf<double>::value), sizeof(double));
  EXPECT_EQ(size_bytes(DTypeOf<std::int32_t>::value), sizeof(std::int32_t));
  EXPECT_EQ(size_bytes(DTypeOf<std::uint8_t>::value), 1U);
  EXPECT_EQ(size_bytes(DTypeOf<std::int64_t>::value), sizeof(std::int64_t));
  EXPECT_STREQ(name(DType::f32), "fp32");
  EXPECT_STREQ(name(DType::bf16), "bf16");
}

}  // namespace
}  // namespace trireme
