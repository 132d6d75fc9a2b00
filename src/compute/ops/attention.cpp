// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.hpp"
#include "device/cuda/handle.hpp"

#include "ops/attention_backend.hpp"
#include "ops/dispatch.hpp"

namespace trireme::ops {

void expect_valid(const AttentionShape& s) {
  TRIREME_EXPECT(s.batch >= 1 && s.time >= 1 && s.heads >= 1 && s.head_channels >= 1,
                 "attention over {} x {} positions, {} heads of {}", s.batch, s.time, s.heads,
                 s.head_channels);
  TRIREME_EXPECT(s.key_value_heads() >= 1 && s.heads % s.key_value_heads() == 0,
                 "{} heads over {} of keys and values", s.heads, s.key_value_heads());
  TRIREME_EXPECT(s.dtype == DType::f32 || s.dtype == DType::bf16, "attention on {}", name(s.dtype));
  TRIREME_EXPECT(s.window >= 0, "a window of {}", s.window);
}

namespace {

std::unique_ptr<Attention::Implementation> make(device::Device& device,
                                                const AttentionShape& s,
                                                const AttentionOptions& options) {
  expect_valid(s);
  if (device.kind() == device::Kind::cpu)
    return make_attention_cpu(s);
  if constexpr (device::cuda::in_this_build)
    return make_attention_cuda(device, s, options);
  throw DeviceError(device.description(), "attention", "this build has the CPU's operations only");
}

/// What both directions have; `out` and `qkv` or their gradients.
void expect_sizes(const char* operation,
                  const AttentionShape& s,
                  ConstView qkv,
                  ConstView out,
                  const auto& call) {
  const std::int64_t rows = s.batch * s.time;
  expect_operands(operation, {{"qkv", qkv, rows * s.packed_width(), s.dtype},
                              {"out", out, rows * s.heads * s.head_channels, s.dtype},
                              {"lse", call.lse, rows * s.heads, DType::f32},
                              {"starts", call.starts, s.documents ? rows : 0, DType::i32}});
  expect_valid(call.dropout);
  TRIREME_EXPECT(s.drops || !call.dropout.active(), "dropout in attention that was made without");
}

}  // namespace

Attention::Attention(device::Device& device,
                     const AttentionShape& shape,
                     const AttentionOptions& options)
    : shape_(shape), implementation_(make(device, shape, options)) {}
Attention::~Attention() = default;

void Attention::forward(const AttentionForward& call, device::Stream& stream) const {
  expect_sizes("attention forward", shape_, call.qkv, call.out, call);
  implementation_->forward(call, stream);
}

void Attention::backward(const AttentionBackward& call, device::Stream& stream) const {
  expect_sizes("attention backward", shape_, call.qkv, call.out, call);
  expect_sizes("attention backward", shape_, call.dqkv, call.dout, call);
  implementation_->backward(call, stream);
}

std::size_t Attention::scratch_bytes() const {
  return implementation_->scratch_bytes();
}

std::size_t Attention::gpu_scratch_bytes(const AttentionShape& s, const AttentionOptions& options) {
  const std::int64_t heads = s.batch * s.heads, sums = 4 * heads * s.time;
  const std::int64_t time = (s.time + 63) / 64 * 64;
  const std::int64_t dp = 2 * heads * time * time, dq = sums * s.head_channels;
  if (!suits_cudnn(s, options))
    return static_cast<std::size_t>(sums);
  if (s.drops)  // backward is ours
    return static_cast<std::size_t>(sums) + cudnn_plan_bytes;
  return static_cast<std::size_t>(sums + (options.deterministic ? dp : dq)) + 2 * cudnn_plan_bytes;
}

double Attention::forward_flops() const {
  const auto time = static_cast<double>(shape_.time);
  const double window =
      shape_.window > 0 ? std::min(time, static_cast<double>(shape_.window)) : time;
  // The first rows, which see less than a window, and the others.
  const double pairs = window * (window + 1) / 2 + (time - window) * window;
  return 4.0 * static_cast<double>(shape_.batch * shape_.heads * shape_.head_channels) * pairs;
}

std::string capture_trouble(const device::Device& device,
                            const AttentionShape& shape,
                            const AttentionOptions& options) {
  if constexpr (device::cuda::in_this_build) {
    if (device.kind() == device::Kind::cuda) {
      const std::size_t version = cudnn_version();
      if (!may_be_captured(shape, version, options))
        return fmt::format(
            "cuDNN {}.{}.{} with a context of {}, which is not a multiple of 128; cuDNN "
            "9.16 can be captured with any",
            version / 10000, version / 100 % 100, version % 100, shape.time);
    }
  }
  return {};
}

std::string slow_on_gpu(const AttentionShape& shape) {
  if (shape.dtype != DType::bf16 || suits_tiles(shape))  // cuDNN supports no others
    return {};
  return fmt::format("heads of {} channels (tensor cores take multiples of 8 up to 128)",
                     shape.head_channels);
}

}  // namespace trireme::ops
