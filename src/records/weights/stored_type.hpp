// SPDX-License-Identifier: Apache-2.0
// The element types of stored weights that are read: fp32, bf16 and fp16, little-endian. All become
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

/// By its name in safetensors: "F32", "BF16", "F16". Nothing for the types that are not read.
std::optional<StoredType> stored_type_named(std::string_view name);
/// "F32", "BF16" or "F16".
const char* name(StoredType type);

/// Exact; infinities and NaNs stay what they are.
float half_to_float(std::uint16_t half);

/// `count` elements from `from`, which need not be aligned. The two may begin at the same place
/// when the type is f32.
void to_fp32(StoredType type, const std::byte* from, std::int64_t count, float* to);

}  // namespace trireme::weights
