// SPDX-License-Identifier: Apache-2.0
#include "ops/cached_attention.hpp"

#include "base/error.hpp"

#include "ops/cpu/cached_attention.hpp"

namespace trireme::ops {
namespace {

const CachedAttentionShape& checked(const CachedAttentionShape& s) {
  TRIREME_EXPECT(s.sequences >= 1 && s.positions >= 1 && s.heads >= 1 && s.head_channels >= 1,
                 "a cache of {} sequences of {} positions, {} heads of {}", s.sequences,
                 s.positions, s.heads, s.head_channels);
  TRIREME_EXPECT(s.key_value_heads() >= 1 && s.heads % s.key_value_heads() == 0,
                 "{} heads over {} of keys and values", s.heads, s.key_value_heads());
  TRIREME_EXPECT(s.dtype == DType::f32 || s.dtype == DType::bf16, "attention on {}", name(s.dtype));
  return s;
}

std::unique_ptr<CachedAttention::Implementation> make(device::Device& device,
                                                      const CachedAttentionShape& shape) {
  require_cached_attention(device);
  return cpu::make_cached_attention(device, shape);
}

}  // namespace

bool has_cached_attention(const device::Device& device) {
  return device.kind() == device::Kind::cpu;
}

void require_cached_attention(const device::Device& device) {
  if (!has_cached_attention(device))
    throw DeviceError(device.description(), "attention to kept keys and values",
                      "there is a body for CPUs alone", __FILE__, __LINE__);
}

std::int64_t cache_elements(const CachedAttentionShape& shape) {
  return cpu::cache_elements(checked(shape));
}

CachedAttention::CachedAttention(device::Device& device, const CachedAttentionShape& shape)
    : shape_(checked(shape)), implementation_(make(device, shape)) {}
CachedAttention::~CachedAttention() = default;
CachedAttention::CachedAttention(CachedAttention&&) noexcept = default;
CachedAttention& CachedAttention::operator=(CachedAttention&&) noexcept = default;

void CachedAttention::forward(View out,
                              View cache,
                              ConstView qkv,
                              ConstView sequences,
                              ConstView positions,
                              ConstView starts,
                              device::Stream& stream) const {
  const std::int64_t rows = sequences.elements;
  const std::int64_t elements = rows * shape_.heads * shape_.head_channels;
  TRIREME_EXPECT(rows >= 1 && positions.elements == rows && sequences.dtype == DType::i32 &&
                     positions.dtype == DType::i32,
                 "{} {} sequences and {} {} positions", rows, name(sequences.dtype),
                 positions.elements, name(positions.dtype));
  TRIREME_EXPECT(starts.elements == (shape_.documents ? rows : 0) &&
                     (!shape_.documents || starts.dtype == DType::i32),
                 "starts of {} {} for {} rows, {} documents", starts.elements, name(starts.dtype),
                 rows, shape_.documents ? "with" : "without");
  const std::int64_t packed = rows * shape_.packed_width();
  TRIREME_EXPECT(qkv.elements == packed && qkv.dtype == shape_.dtype, "QKV is {} {}, not {} {}",
                 qkv.elements, name(qkv.dtype), packed, name(shape_.dtype));
  TRIREME_EXPECT(out.elements == elements && out.dtype == shape_.dtype, "out is {} {}, not {} {}",
                 out.elements, name(out.dtype), elements, name(shape_.dtype));
  TRIREME_EXPECT(cache.elements == cache_elements(shape_) && cache.dtype == DType::f32,
                 "the cache is {} {}, not {} fp32", cache.elements, name(cache.dtype),
                 cache_elements(shape_));
  implementation_->forward(out, cache, qkv, sequences, positions, starts, stream);
}

}  // namespace trireme::ops
