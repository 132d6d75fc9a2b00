// SPDX-License-Identifier: Apache-2.0
// The element types that buffers hold, and their sizes. `bf16` is a storage type: arithmetic is
// always done in fp32.
//
// Memory is typed at run time (base/view.hpp), since a deck chooses the precision; kernels are
// templates over C++ types, and DTypeOf ties the two. The numbers of the enumerators are not
// stored: files have the names or HDF5's own types.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace trireme {

enum class DType : std::uint8_t { f32, bf16, f64, i32, u8, i64 };

struct DTypeFacts {
  const char* name;  ///< used in messages, decks and the record
  std::size_t bytes;
};
inline constexpr DTypeFacts dtype_facts[] = {{"fp32", 4},  {"bf16", 2},  {"fp64", 8},
                                             {"int32", 4}, {"uint8", 1}, {"int64", 8}};

constexpr std::size_t size_bytes(DType dtype) {
  return dtype_facts[static_cast<std::size_t>(dtype)].bytes;
}
constexpr const char* name(DType dtype) {
  return dtype_facts[static_cast<std::size_t>(dtype)].name;
}

/// bf16: the upper half of an IEEE fp32. Rounds to nearest even; NaN stays NaN.
struct Bf16 {
  std::uint16_t bits = 0;

  Bf16() = default;
  constexpr explicit Bf16(float value) {
    const auto raw = std::bit_cast<std::uint32_t>(value);
    if ((raw & 0x7fffffffU) > 0x7f800000U)
      bits = static_cast<std::uint16_t>((raw >> 16U) | 0x40U);
    else
      bits = static_cast<std::uint16_t>((raw + 0x7fffU + ((raw >> 16U) & 1U)) >> 16U);
  }
  constexpr explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
  }
};
static_assert(sizeof(Bf16) == 2);

/// The DType of a C++ type; other types have none and do not compile.
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> : std::integral_constant<DType, DType::f32> {};
template <>
struct DTypeOf<Bf16> : std::integral_constant<DType, DType::bf16> {};
template <>
struct DTypeOf<double> : std::integral_constant<DType, DType::f64> {};
template <>
struct DTypeOf<std::int32_t> : std::integral_constant<DType, DType::i32> {};
template <>
struct DTypeOf<std::uint8_t> : std::integral_constant<DType, DType::u8> {};
template <>
struct DTypeOf<std::int64_t> : std::integral_constant<DType, DType::i64> {};

}  // namespace trireme
