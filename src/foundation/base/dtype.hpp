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

namespace trireme {

enum class DType : std::uint8_t { f32, bf16, f64, i32, u8, i64 };

/// Of one element.
constexpr std::size_t size_bytes(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
      return 2;
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::u8:
      return 1;
  }
  return 0;
}

/// In messages, decks and the record.
constexpr const char* name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "fp32";
    case DType::bf16:
      return "bf16";
    case DType::f64:
      return "fp64";
    case DType::i32:
      return "int32";
    case DType::u8:
      return "uint8";
    case DType::i64:
      return "int64";
  }
  return "?";
}

/// The upper half of an IEEE fp32. Rounds to nearest even; NaN stays NaN.
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
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<Bf16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::u8;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::i64;
};

}  // namespace trireme
