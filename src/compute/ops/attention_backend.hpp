// SPDX-License-Identifier: Apache-2.0
// Implementations of Attention, one class per backend, and which shapes cuDNN serves: arithmetic
// that a plan needs on machines without a GPU.
#pragma once

#include <memory>

#include "ops/attention.hpp"

namespace trireme::ops {

struct Attention::Implementation {
  virtual ~Implementation() = default;
  /// Sizes and dtypes are checked.
  virtual void forward(const AttentionForward& call, device::Stream& stream) = 0;
  virtual void backward(const AttentionBackward& call, device::Stream& stream) = 0;
  [[nodiscard]] virtual std::size_t scratch_bytes() const { return 0; }
};

/// Whether every query sees all positions up to its own.
inline bool sees_all(const AttentionShape& shape) {
  return (shape.window == 0 || shape.window >= shape.time) && !shape.documents;
}

/// Whether cuDNN's fused attention is used for this shape where there is no dropout. Its front end
/// refuses the backward pass of a single position, and places the plan's workspace after
/// B·H·T·4 bytes of its own, which must therefore be a multiple of 16. Grouped heads, windows and
/// documents are left to our own kernels, as is dropout, whose mask must be ours.
/// Source: cudnn-frontend 1.18, graph_interface.h, execute().
inline bool suits_cudnn(const AttentionShape& shape, const AttentionOptions& options = {}) {
  return options.kernels != AttentionKernels::own && shape.dtype == DType::bf16 &&
         shape.head_channels % 8 == 0 && shape.head_channels <= 128 && shape.time > 1 &&
         shape.heads * shape.time % 4 == 0 && shape.group() == 1 && sees_all(shape);
}

/// Whether our own kernels with tensor cores take this shape, with dropout or without. In bf16 what
/// neither they nor cuDNN take is left to kernels without tensor cores; so is all of fp32.
inline bool suits_tiles(const AttentionShape& shape) {
  return shape.dtype == DType::bf16 && shape.head_channels % 8 == 0 && shape.head_channels <= 128;
}

/// Whether what cuDNN `version` (90100: 9.1.0) computes may be captured in a CUDA graph. Below 9.16
/// its front end pads other contexts than multiples of 128, by lengths that it copies from the
/// host's memory at every call: a graph would copy them from where they no longer are.
/// Source: cudnn-frontend 1.18, node/scaled_dot_product_flash_attention.h.
inline bool may_be_captured(const AttentionShape& shape,
                            std::size_t version,
                            const AttentionOptions& options = {}) {
  return version >= 91600 || shape.time % 128 == 0 || !suits_cudnn(shape, options) || shape.drops;
}

/// Throws ContractError where the sizes are not those of an attention.
void expect_valid(const AttentionShape& shape);

std::unique_ptr<Attention::Implementation> make_attention_cpu(const AttentionShape& shape);
/// In builds with CUDA.
std::unique_ptr<Attention::Implementation> make_attention_cuda(device::Device& device,
                                                               const AttentionShape& shape,
                                                               const AttentionOptions& options);
/// In builds with CUDA: of the library found at run time.
std::size_t cudnn_version();

}  // namespace trireme::ops
