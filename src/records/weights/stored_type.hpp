// SPDX-License-Identifier: Apache-2.0
// The element types of stored weights: fp32, bf16 and fp16, little-endian, which are converted to
// fp32 exactly, and Q8_0 of GGUF files, which is only written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

#include "base/dtype.hpp"
#include "base/key.hpp"

namespace trireme::weights {

enum class StoredType : std::uint8_t { f32, bf16, f16, q8_0 };
/// Elements that share a factor in q8_0.
inline constexpr std::int64_t q8_0_block = 32;

inline std::int64_t elements_of(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies());
}
/// Size of one element in bytes. Requires: not q8_0.
constexpr std::size_t size_bytes(StoredType type) {
  return type == StoredType::f32 ? 4 : 2;
}
/// Size in bytes of `elements`; q8_0 requires whole blocks.
constexpr std::int64_t bytes_of(StoredType type, std::int64_t elements) {
  return type == StoredType::q8_0 ? elements / q8_0_block * (q8_0_block + 2)
                                  : elements * static_cast<std::int64_t>(size_bytes(type));
}

/// Exact; infinities and NaNs are kept.
float half_to_float(std::uint16_t half);
/// Rounds to nearest even; NaN stays NaN.
std::uint16_t float_to_half(float value);

/// Converts `count` elements at `from`, which need not be aligned. `from` and `to` may be the same
/// address if the type is f32.
void to_fp32(StoredType type, const std::byte* from, std::int64_t count, float* to);

/// Converts to `type` with rounding, into `to`. q8_0: whole blocks, each a factor in fp16 and 32
/// integers of 8 bits, rounded as in ggml.
void from_fp32(StoredType type, std::span<const float> from, std::vector<std::byte>& to);

}  // namespace trireme::weights

template <>
struct trireme::EnumNames<trireme::weights::StoredType> {
  using enum weights::StoredType;
  static constexpr std::pair<weights::StoredType, const char*> table[] = {
      {f32, "F32"}, {bf16, "BF16"}, {f16, "F16"}, {q8_0, "Q8_0"}};
};
