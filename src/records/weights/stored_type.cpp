// SPDX-License-Identifier: Apache-2.0
#include "weights/stored_type.hpp"

#include <bit>
#include <cstring>
#include <utility>

namespace trireme::weights {
namespace {

constexpr std::pair<StoredType, const char*> type_names[] = {
    {StoredType::f32, "F32"}, {StoredType::bf16, "BF16"}, {StoredType::f16, "F16"}};

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

std::optional<StoredType> stored_type_named(std::string_view name) {
  for (const auto& [type, known] : type_names)
    if (name == known)
      return type;
  return std::nullopt;
}

const char* name(StoredType type) {
  for (const auto& [known, word] : type_names)
    if (type == known)
      return word;
  return "?";
}

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
  }
}

}  // namespace trireme::weights
