// SPDX-License-Identifier: Apache-2.0
// Implementations of Attention, one class per backend, and which shapes cuDNN computes, which a
// plan also needs on machines without a GPU.
#pragma once

#include <memory>

#include "ops/attention.hpp"

namespace trireme::ops {

struct Attention::Implementation {
  virtual ~Implementation() = default;
  /// Sizes and dtypes were checked.
  virtual void forward(const AttentionForward& call, device::Stream& stream) = 0;
  virtual void backward(const AttentionBackward& call, device::Stream& stream) = 0;
  [[nodiscard]] virtual std::size_t scratch_bytes() const { return 0; }
};

/// Whether every query sees all positions up to its own.
inline bool sees_all(const AttentionShape& shape) {
  return (shape.window == 0 || shape.window >= shape.time) && !shape.documents;
}

/// Whether cuDNN's fused attention is used for this shape without dropout. Its front end refuses
/// the backward pass of a single position. It places the plan's workspace after B·H·T·4 bytes of
/// its own, so that number must be a multiple of 16. Our own kernels compute grouped heads,
/// windows, documents and dropout, whose mask must be ours.
/// Source: cudnn-frontend 1.18, graph_interface.h, execute().
inline bool suits_cudnn(const AttentionShape& shape, const AttentionOptions& options = {}) {
  return options.kernels != AttentionKernels::own && shape.dtype == DType::bf16 &&
         shape.head_channels % 8 == 0 && shape.head_channels <= 128 && shape.time > 1 &&
         shape.heads * shape.time % 4 == 0 && shape.group() == 1 && sees_all(shape);
}

/// Whether our tensor-core kernels support this shape, with or without dropout. Kernels without
/// tensor cores compute all of fp32, and bf16 that neither these nor cuDNN support.
inline bool suits_tiles(const AttentionShape& shape) {
  return shape.dtype == DType::bf16 && shape.head_channels % 8 == 0 && shape.head_channels <= 128;
}

/// Whether work of cuDNN `version` (90100: 9.1.0) may be captured in a CUDA graph. Below 9.16, for
/// contexts that are not multiples of 128, its front end copies lengths from host memory at every
/// call. A graph would copy them when that memory is no longer valid.
/// Source: cudnn-frontend 1.18, node/scaled_dot_product_flash_attention.h.
inline bool may_be_captured(const AttentionShape& shape,
                            std::size_t version,
                            const AttentionOptions& options = {}) {
  return version >= 91600 || shape.time % 128 == 0 || !suits_cudnn(shape, options) || shape.drops;
}

/// Throws ContractError if the sizes are not valid for attention.
void expect_valid(const AttentionShape& shape);

std::unique_ptr<Attention::Implementation> make_attention_cpu(const AttentionShape& shape);
/// Only in builds with CUDA.
std::unique_ptr<Attention::Implementation> make_attention_cuda(device::Device& device,
                                                               const AttentionShape& shape,
                                                               const AttentionOptions& options);
/// In builds with CUDA: of the library found at run time.
std::size_t cudnn_version();

}  // namespace trireme::ops
