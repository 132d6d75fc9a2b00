// SPDX-License-Identifier: Apache-2.0
// Causal attention of single positions to those before them, whose keys and values were kept: what
// a token costs while text is generated. A cache holds the keys and values of some sequences, each
// of up to this many positions; a row of a call is one position of one of them.
//
// 1. A call stores the keys and values of its rows, and then lets each row attend to the positions
//    0 ... its own of its sequence, or to the last `window` of these, and with documents to none
//    before its start. Requires: those before it were stored by this call or earlier ones; a
//    position stored again replaces the old one. Starts never fall along a sequence.
// 2. The bits of a row depend on its sequence's rows alone, not on the other rows of the call. In
//    fp32 they are those of Attention::forward. In bf16 they are that function's where it works in
//    fp32 as well (docs/design/compute.md): AMX and AVX-512 BF16 round probabilities to bf16.
// 3. A cache begins as zeros, is fp32 whatever T is, and is stored as the kernel reads it: per
//    sequence and head of keys, tiles of 64 positions, keys transposed. Only this operation reads
//    it.
// 4. There is a body for CPUs alone (has_cached_attention).
#pragma once

#include "base/view.hpp"
#include "device/device.hpp"

#include "ops/attention.hpp"

namespace trireme::ops {

/// Whether the device can.
bool has_cached_attention(const device::Device& device);
/// Throws DeviceError where it cannot.
void require_cached_attention(const device::Device& device);
/// Of fp32, in a cache for shape.batch sequences of up to shape.time positions.
std::int64_t cache_elements(const AttentionShape& shape);

/// A row is one position of a sequence; one with a negative sequence is room to spare: nothing of
/// it is stored, and its output is 0.
struct CachedAttention {
  static constexpr const char* name = "cached_attention";
  View out;               ///< [rows, H, D] of the shape's dtype
  View cache;             ///< [cache_elements] fp32
  ConstView qkv;          ///< [rows, H + 2 G, D] of the shape's dtype, as in attention.hpp
  ConstView sequences;    ///< [rows] int32
  ConstView positions;    ///< [rows] int32
  ConstView starts = {};  ///< [rows] int32; where the shape has documents
  AttentionShape shape;   ///< of the cache; what it says of dropout does not matter
};
/// Throws DeviceError where has_cached_attention() is false.
void run(const CachedAttention& call, device::Stream& stream);

}  // namespace trireme::ops
