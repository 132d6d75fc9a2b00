// SPDX-License-Identifier: Apache-2.0
// The CPU's body of ops/cached_attention.hpp.
#pragma once

#include <memory>

#include "ops/cached_attention.hpp"

namespace trireme::ops::cpu {

std::int64_t cache_elements(const CachedAttentionShape& shape);

std::unique_ptr<CachedAttention::Implementation> make_cached_attention(
    device::Device& device, const CachedAttentionShape& shape);

}  // namespace trireme::ops::cpu
