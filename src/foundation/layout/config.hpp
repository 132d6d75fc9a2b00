// SPDX-License-Identifier: Apache-2.0
// The options of a layout: order and padding of buckets, and sharding. tests/layout checks what
// each padding guarantees.
#pragma once

#include <cstdint>

#include "base/key.hpp"

namespace trireme::layout {

/// A bucket is padded to a multiple of: aligned: lcm(ranks * 64, 128), every shard of every dtype
/// is aligned to 128 bytes. megatron: lcm(ranks, 128), shards are unaligned at many rank counts.
/// megatron_high_bandwidth: lcm(ranks, 128, 2^16), aligned up to 8192 ranks, but the padding grows
/// with the odd part of the rank count. none: ranks, the minimum for equal shards.
enum class Padding : std::uint8_t { aligned, megatron, megatron_high_bandwidth, none };
inline constexpr Padding default_padding = Padding::aligned;

/// reverse: in the order in which backward finishes parameters, so that the first bucket can be
/// reduced while backward runs. registration: in the order of forward; then the first bucket is
/// complete last, and the others wait for it.
enum class BucketOrder : std::uint8_t { reverse, registration };

/// What is sharded. none: every rank holds and updates everything. optimizer: the optimizer's state
/// (ZeRO stage 1). gradients: also gradients (stage 2). parameters: also parameters (stage 3).
enum class Shard : std::uint8_t { none, optimizer, gradients, parameters };
inline constexpr Shard default_shard = Shard::optimizer;

/// Whether complete gradients exist only for a few buckets at a time.
constexpr bool shards_gradients(Shard shard) {
  return shard == Shard::gradients || shard == Shard::parameters;
}

}  // namespace trireme::layout
