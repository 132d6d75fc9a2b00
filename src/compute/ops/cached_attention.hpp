// SPDX-License-Identifier: Apache-2.0
// Causal attention of single positions to earlier ones, whose keys and values are cached: for
// generating text. A cache holds the keys and values of several sequences, each of up to a fixed
// number of positions. A row of a call is one position of one sequence.
// 1. A call stores the keys and values of its rows. Then each row attends to positions 0 to its own
//    of its sequence: with a window, only to the last `window`; with documents, to none before its
//    start. Requires: this call or earlier ones stored those positions. Storing a position again
//    replaces it. Starts never decrease along a sequence.
// 2. The bits of a row depend only on the rows of its sequence. In fp32 they equal those of
//    Attention::forward. In bf16 they do if that also computes in fp32 (docs/design/compute.md);
//    AMX and AVX-512 BF16 round probabilities to bf16.
// 3. A cache is initially zero, is fp32 for any T, and has the layout that the kernel reads: per
//    sequence and key head, tiles of 64 positions, keys transposed. Only this operation reads it.
// 4. Implemented for CPUs only (has_cached_attention).
#pragma once

#include "base/view.hpp"
#include "device/device.hpp"

#include "ops/attention.hpp"

namespace trireme::ops {

bool has_cached_attention(const device::Device& device);
/// Throws DeviceError if the device does not have it.
void require_cached_attention(const device::Device& device);
/// Number of fp32 of a cache for shape.batch sequences of up to shape.time positions.
std::int64_t cache_elements(const AttentionShape& shape);

/// A row with a negative sequence is padding: none of it is stored, and its output is 0.
struct CachedAttention {
  static constexpr const char* name = "cached_attention";
  View out;               ///< [rows, H, D] of the shape's dtype
  View cache;             ///< [cache_elements] fp32
  ConstView qkv;          ///< [rows, H + 2 G, D] of the shape's dtype, as in attention.hpp
  ConstView sequences;    ///< [rows] int32
  ConstView positions;    ///< [rows] int32
  ConstView starts = {};  ///< [rows] int32; where the shape has documents
  AttentionShape shape;   ///< of the cache; its dropout is ignored
};
/// Throws DeviceError where has_cached_attention() is false.
void run(const CachedAttention& call, device::Stream& stream);

}  // namespace trireme::ops
