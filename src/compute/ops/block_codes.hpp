// SPDX-License-Identifier: Apache-2.0
// Encodes fp32 values in a byte each, with a scale per block of 64, or only each block's largest.
//
// The scale is the smallest power of two for which the largest magnitude of the block has a code.
// So a decoded value is exact in fp32, and so is the encoding error, unless it is subnormal.
// Source of scales and codes: OCP Microscaling Formats (MX) Specification 1.0, sections 5.2 to 5.4
// (E8M0, INT8, FP8 E4M3); its blocks have 32 elements. Parameters and shards begin at multiples of
// 64 elements (layout/plan.hpp), so which elements share a block depends on no bucket or shard.
//
// n values are stored as n codes, then n / 64 exponents of scales: coded_bytes(). top4 and top1
// store one word per value: its fp32 bits, with the low six replaced by its place in the block.
//
// A block whose largest magnitude is 2^126 or more, infinite or NaN has the scale NaN: all of its
// values are decoded as NaN. Among the largest values, infinities and NaN come first.
#pragma once

#include <bit>
#include <cstdint>

#include "base/host_device.hpp"

#include "ops/operation.hpp"

namespace trireme::ops {

/// int8: nearest even, -127 to 127. fp8: e4m3, up to 448, with 4 significant bits. top4, top1: the
/// values of the largest magnitude; the first of those that are equal in 18 significant bits.
enum class BlockCode : std::uint8_t { int8, fp8, top4, top1 };

inline constexpr std::int64_t block_elements = 64;
/// Number of values of a block that have a code.
constexpr int kept_values(BlockCode code) {
  constexpr int kept[] = {64, 64, 4, 1};
  return kept[static_cast<std::size_t>(code)];
}
constexpr std::int64_t coded_bytes(BlockCode code, std::int64_t elements) {
  const std::int64_t blocks = elements / block_elements, kept = kept_values(code);
  return blocks * (kept == block_elements ? block_elements + 1 : kept * 4);
}

/// codes = the codes of values + error; error = what the codes do not represent, which is lost
/// without `error`. The error of a block that is not finite does not change.
struct EncodeBlocks {
  static constexpr const char* name = "encode_blocks";
  View codes;        ///< [coded_bytes(code, n)] bytes
  ConstView values;  ///< [n] fp32, n a multiple of 64
  View error = {};   ///< optional, [n] fp32
  BlockCode code;
};
TRIREME_OPERATION(EncodeBlocks);

/// sum = the decoded values; with `adds`, sum += these.
struct DecodeBlocks {
  static constexpr const char* name = "decode_blocks";
  View sum;         ///< [n] fp32
  ConstView codes;  ///< [coded_bytes(code, n)] bytes
  BlockCode code;
  bool adds = false;
};
TRIREME_OPERATION(DecodeBlocks);

#define TRIREME_CODE TRIREME_HOST_DEVICE static inline __attribute__((always_inline))

/// The largest magnitude with a code is 1.`mantissa` x 2^`exponent`.
struct Int8Code {
  static constexpr std::uint32_t exponent = 6, mantissa = 0x7e0000U;  // 127

  TRIREME_CODE std::uint8_t encode(float x) {
    // The rounded integer is in the low bits.
    return static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(x + 0x1.8p23F));
  }
  TRIREME_CODE float decode(std::uint8_t code) {
    return static_cast<float>(static_cast<std::int8_t>(code));
  }
};

struct Fp8Code {
  static constexpr std::uint32_t exponent = 8, mantissa = 0x600000U;  // 448

  TRIREME_CODE std::uint8_t encode(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t size = bits & 0x7fffffffU;
    // Below 2^-6 codes are multiples of 2^-9; others have three bits of mantissa.
    const std::uint32_t small =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) * 512.0F + 0x1.8p23F) & 0xffU;
    const std::uint32_t normal = ((size + 0x7ffffU + ((size >> 20U) & 1U)) >> 20U) - (120U << 3U);
    const std::uint32_t code = size < (121U << 23U) ? small : normal;
    return static_cast<std::uint8_t>(code | ((bits >> 24U) & 0x80U));
  }
  TRIREME_CODE float decode(std::uint8_t code) {
    const std::uint32_t size = code & 0x7fU;
    const float normal = std::bit_cast<float>((size << 20U) + (120U << 23U));
    const float value = size < 8 ? static_cast<float>(size) * 0x1p-9F : normal;
    return (code & 0x80U) != 0 ? -value : value;
  }
};

/// A value with its place in the block. The greatest key belongs to the largest value; of equal
/// ones, to the first.
struct PlacedValue {
  static constexpr std::uint32_t places = block_elements - 1;

  TRIREME_CODE std::uint32_t key(float value, std::uint32_t place) {
    return (std::bit_cast<std::uint32_t>(value) & 0x7fffffffU & ~places) | (places - place);
  }
  TRIREME_CODE std::uint32_t place_of_key(std::uint32_t key) { return places - (key & places); }
  TRIREME_CODE std::uint32_t encode(float value, std::uint32_t place) {
    return (std::bit_cast<std::uint32_t>(value) & ~places) | place;
  }
  TRIREME_CODE float decode(std::uint32_t word) { return std::bit_cast<float>(word & ~places); }
};

#undef TRIREME_CODE

/// Biased exponent (plus 127) of the scale of a block; `largest` has the bits of its largest
/// magnitude. At least 1, so that scales are normal.
template <class Code>
TRIREME_HOST_DEVICE constexpr std::uint8_t scale_of(std::uint32_t largest) {
  constexpr std::uint32_t too_large = 253U << 23U;
  const std::uint32_t needed =
      (largest >> 23U) + ((largest & 0x7fffffU) > Code::mantissa ? 1U : 0U);
  return static_cast<std::uint8_t>(largest >= too_large           ? 255U
                                   : needed > Code::exponent + 1U ? needed - Code::exponent
                                                                  : 1U);
}
inline constexpr std::uint8_t nan_scale = 255;

TRIREME_HOST_DEVICE constexpr float scale_from(std::uint8_t exponent) {
  return std::bit_cast<float>(exponent == nan_scale ? 0x7fc00000U
                                                    : static_cast<std::uint32_t>(exponent) << 23U);
}
/// Requires: not nan_scale.
TRIREME_HOST_DEVICE constexpr float inverse_scale_from(std::uint8_t exponent) {
  return std::bit_cast<float>((254U - exponent) << 23U);
}

/// The words of the largest values, by block.
TRIREME_HOST_DEVICE inline std::uint32_t* words_of(const View& codes) {
  return reinterpret_cast<std::uint32_t*>(codes.data);
}
TRIREME_HOST_DEVICE inline const std::uint32_t* words_of(const ConstView& codes) {
  return reinterpret_cast<const std::uint32_t*>(codes.data);
}

TRIREME_HOST_DEVICE constexpr bool is_finite_key(std::uint32_t key) {
  return (key & 0x7f800000U) != 0x7f800000U;
}

/// Calls body(Code{}). Requires: every value has a code.
template <class Body>
void with_code(BlockCode code, const Body& body) {
  if (code == BlockCode::int8)
    body(Int8Code{});
  else
    body(Fp8Code{});
}

}  // namespace trireme::ops
