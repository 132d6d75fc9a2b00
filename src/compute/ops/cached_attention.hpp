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

#include <compare>
#include <memory>

#include "base/view.hpp"
#include "device/device.hpp"

namespace trireme::ops {

struct CachedAttentionShape {
  std::int64_t sequences = 0, positions = 0, heads = 0, head_channels = 0;
  DType dtype = DType::f32;
  std::int64_t grouped_heads = 0;  ///< G, of keys and values; 0: as many as heads
  std::int64_t window = 0;         ///< as in attention.hpp
  bool documents = false;          ///< as in attention.hpp

  [[nodiscard]] std::int64_t key_value_heads() const {
    return grouped_heads != 0 ? grouped_heads : heads;
  }
  /// Query heads that share keys and values.
  [[nodiscard]] std::int64_t group() const { return heads / key_value_heads(); }
  /// Elements of a row of qkv.
  [[nodiscard]] std::int64_t packed_width() const {
    return (heads + 2 * key_value_heads()) * head_channels;
  }
  auto operator<=>(const CachedAttentionShape&) const = default;
};

/// Whether the device can.
bool has_cached_attention(const device::Device& device);
/// Throws DeviceError where it cannot.
void require_cached_attention(const device::Device& device);
/// Of fp32, in a cache of this shape.
std::int64_t cache_elements(const CachedAttentionShape& shape);

/// A row is one position of a sequence; one with a negative sequence is room to spare: nothing of
/// it is stored, and its output is 0.
struct CachedAttentionCall {
  View out;               ///< [rows, H, D] of the shape's dtype
  View cache;             ///< [cache_elements] fp32
  ConstView qkv;          ///< [rows, H + 2 G, D] of the shape's dtype, as in attention.hpp
  ConstView sequences;    ///< [rows] int32
  ConstView positions;    ///< [rows] int32
  ConstView starts = {};  ///< [rows] int32; where the shape has documents
};

class CachedAttention {
 public:
  /// Scratch is allocated here, once, for the threads that OpenMP has. Throws DeviceError where
  /// has_cached_attention() is false.
  CachedAttention(device::Device& device, const CachedAttentionShape& shape);
  ~CachedAttention();

  void forward(const CachedAttentionCall& call, device::Stream& stream) const;

  [[nodiscard]] const CachedAttentionShape& shape() const { return shape_; }

  struct Implementation;

 private:
  CachedAttentionShape shape_;
  std::unique_ptr<Implementation> implementation_;
};

/// What does it, one class per backend.
struct CachedAttention::Implementation {
  virtual ~Implementation() = default;
  /// Sizes and dtypes are checked.
  virtual void forward(const CachedAttentionCall& call, device::Stream& stream) = 0;
};

}  // namespace trireme::ops
