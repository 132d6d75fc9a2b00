// SPDX-License-Identifier: Apache-2.0
#include "weights/stored_type.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.hpp"

namespace trireme::weights {
namespace {

static_assert(std::endian::native == std::endian::little, "stored weights are little-endian");

template <class Convert>
void convert_16(const std::byte* from, std::int64_t count, float* to, Convert convert) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, from + 2 * i, sizeof bits);
    to[i] = convert(bits);
  }
}

}  // namespace

float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16U;
  const std::uint32_t exponent = (half >> 10U) & 0x1fU;
  const std::uint32_t fraction = half & 0x3ffU;
  if (exponent == 0x1f)
    return std::bit_cast<float>(sign | 0x7f800000U | fraction << 13U);
  if (exponent == 0) {  // a multiple of 2^-24, which fp32 holds
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | (exponent + 112U) << 23U | fraction << 13U);
}

std::uint16_t float_to_half(float value) {
  const auto raw = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = raw >> 16U & 0x8000U, magnitude = raw & 0x7fffffffU;
  std::uint32_t half;
  if (magnitude > 0x7f800000U)
    half = 0x7e00;
  else if (magnitude >= 0x47800000U)  // 2^16
    half = 0x7c00;
  else if (magnitude < 0x38800000U)  // below 2^-14: the sum's last bit is 2^-24, as that of a half
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000U;
  else
    half = (magnitude - 0x38000000U + 0xfffU + (magnitude >> 13U & 1U)) >> 13U;
  return static_cast<std::uint16_t>(sign | half);
}

void to_fp32(StoredType type, const std::byte* from, std::int64_t count, float* to) {
  switch (type) {
    case StoredType::f32:
      std::memmove(to, from, static_cast<std::size_t>(count) * sizeof(float));
      return;
    case StoredType::bf16:
      convert_16(from, count, to, [](std::uint16_t bits) {
        return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
      });
      return;
    case StoredType::f16:
      convert_16(from, count, to, half_to_float);
      return;
    case StoredType::q8_0:
      break;
  }
  TRIREME_EXPECT(false, "weights are not read from {}", word(type));
}

void from_fp32(StoredType type, std::span<const float> from, std::vector<std::byte>& to) {
  to.resize(static_cast<std::size_t>(bytes_of(type, std::ssize(from))));
  std::byte* at = to.data();
  const auto put = [&at](const auto& value) {
    std::memcpy(at, &value, sizeof value);
    at += sizeof value;
  };
  switch (type) {
    case StoredType::f32:
      for (const float value : from) put(value);
      return;
    case StoredType::bf16:
      for (const float value : from) put(Bf16(value).bits);
      return;
    case StoredType::f16:
      for (const float value : from) put(float_to_half(value));
      return;
    case StoredType::q8_0:
      TRIREME_EXPECT(std::ssize(from) % q8_0_block == 0, "{} elements in blocks of {}", from.size(),
                     q8_0_block);
      for (std::size_t i = 0; i < from.size(); i += q8_0_block) {
        const auto block = from.subspan(i, q8_0_block);
        float most = 0;
        for (const float value : block) most = std::max(most, std::abs(value));
        const float factor = most / 127, inverse = factor != 0 ? 1 / factor : 0;
        put(float_to_half(factor));
        for (const float value : block) put(static_cast<std::int8_t>(std::round(value * inverse)));
      }
      return;
  }
}

}  // namespace trireme::weights
