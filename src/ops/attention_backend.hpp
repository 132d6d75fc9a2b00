// SPDX-License-Identifier: Apache-2.0
// What stands behind an Attention, one class per backend.
#pragma once

#include <memory>

#include "ops/attention.hpp"

namespace trireme::ops {

struct Attention::Implementation {
  virtual ~Implementation() = default;
  /// Sizes and dtypes are checked.
  virtual void forward(
      View out, View lse, ConstView qkv, const Dropout& dropout, device::Stream& stream) = 0;
  virtual void backward(View dqkv,
                        ConstView dout,
                        ConstView qkv,
                        ConstView out,
                        ConstView lse,
                        const Dropout& dropout,
                        device::Stream& stream) = 0;
};

std::unique_ptr<Attention::Implementation> make_attention_cpu(device::Device& device,
                                                              const AttentionShape& shape);
/// In builds with CUDA.
std::unique_ptr<Attention::Implementation> make_attention_cuda(device::Device& device,
                                                               const AttentionShape& shape);

}  // namespace trireme::ops
