// SPDX-License-Identifier: Apache-2.0
#include "ops/head_norm.hpp"

#include "ops/dispatch.hpp"

namespace trireme::ops {
namespace {

/// `kept`: rows of raw and rstd.
void expect_norm(const char* operation,
                 const HeadNorm& norm,
                 ConstView packed,
                 ConstView raw,
                 ConstView rstd,
                 std::int64_t kept) {
  const RotaryShape& s = norm.shape;
  const std::int64_t D = s.head_channels;
  TRIREME_EXPECT(s.heads >= 1 && D >= 1 && s.time >= 1 && norm.query_heads >= 0 &&
                     norm.query_heads <= s.heads && s.heads * D <= s.stride && norm.epsilon > 0,
                 "a norm of {} heads of {} in rows of {}, epsilon {}", s.heads, D, s.stride,
                 norm.epsilon);
  expect_rows(packed, s.stride);
  const std::int64_t gains = norm.query_gain.empty() && norm.key_gain.empty() ? 0 : D;
  expect_operands(operation, {{"raw", raw, kept * s.heads * D, packed.dtype},
                              {"rstd", rstd, kept * s.heads, DType::f32},
                              {"query_gain", norm.query_gain, gains, packed.dtype},
                              {"key_gain", norm.key_gain, gains, packed.dtype}});
  TRIREME_EXPECT(norm.table.empty() || D % 2 == 0, "a rotation of heads of {}", D);
  expect_positions(operation, norm.table, norm.positions, packed.elements / s.stride, s);
}

}  // namespace

void run(const HeadNormForward& call, device::Stream& stream) {
  const bool keeps = !call.raw.empty() || !call.rstd.empty();
  expect_norm(call.name, call.norm, call.packed, call.raw, call.rstd,
              keeps ? call.packed.elements / call.norm.shape.stride : 0);
  enqueue(call, call.packed.dtype, stream);
}

void run(const HeadNormBackward& call, device::Stream& stream) {
  expect_norm(call.name, call.norm, call.d_packed, call.raw, call.rstd,
              call.d_packed.elements / call.norm.shape.stride);
  TRIREME_EXPECT(call.norm.positions.empty(), "{} given positions", call.name);
  expect_operands(call.name,
                  {{"d_query_gain", call.d_query_gain, call.norm.query_gain.elements, DType::f32},
                   {"d_key_gain", call.d_key_gain, call.norm.key_gain.elements, DType::f32}});
  enqueue(call, call.d_packed.dtype, stream);
}

}  // namespace trireme::ops
