// SPDX-License-Identifier: Apache-2.0
#include "ops/cached_attention.hpp"

#include "base/error.hpp"

#include "ops/cpu/cached_attention.hpp"
#include "ops/dispatch.hpp"

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
                      "there is a body for CPUs alone");
}

std::int64_t cache_elements(const CachedAttentionShape& shape) {
  return cpu::cache_elements(checked(shape));
}

CachedAttention::CachedAttention(device::Device& device, const CachedAttentionShape& shape)
    : shape_(checked(shape)), implementation_(make(device, shape)) {}
CachedAttention::~CachedAttention() = default;

void CachedAttention::forward(const CachedAttentionCall& call, device::Stream& stream) const {
  const CachedAttentionShape& s = shape_;
  const std::int64_t rows = call.sequences.elements;
  TRIREME_EXPECT(rows >= 1, "cached attention of {} rows", rows);
  expect_operands("cached attention", {{"sequences", call.sequences, rows, DType::i32},
                                       {"positions", call.positions, rows, DType::i32},
                                       {"starts", call.starts, s.documents ? rows : 0, DType::i32},
                                       {"qkv", call.qkv, rows * s.packed_width(), s.dtype},
                                       {"out", call.out, rows * s.heads * s.head_channels, s.dtype},
                                       {"cache", call.cache, cache_elements(s), DType::f32}});
  implementation_->forward(call, stream);
}

}  // namespace trireme::ops
