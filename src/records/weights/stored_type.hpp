// SPDX-License-Identifier: Apache-2.0
// The element types of stored weights: fp32, bf16 and fp16, little-endian. All are converted to
// fp32, which is exact.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/dtype.hpp"

namespace trireme::weights {

enum class StoredType : std::uint8_t { f32, bf16, f16 };

constexpr std::size_t size_bytes(StoredType type) {
  return type == StoredType::f32 ? 4 : 2;
}

/// The type named "F32", "BF16" or "F16" in safetensors; nothing for other names.
std::optional<StoredType> stored_type_named(std::string_view name);
/// "F32", "BF16" or "F16".
const char* name(StoredType type);

/// Exact; infinities and NaNs are kept.
float half_to_float(std::uint16_t half);

/// Converts `count` elements at `from`, which need not be aligned. `from` and `to` may be the same
/// address if the type is f32.
void to_fp32(StoredType type, const std::byte* from, std::int64_t count, float* to);

}  // namespace trireme::weights
