// SPDX-License-Identifier: Apache-2.0
// CUDA bodies of layer_norm.hpp; T is float or Bf16; gamma, beta and their gradients may be null,
// and so may mean: then nothing is subtracted from a row (rms_norm). A warp computes a row.
// Gradients of gamma and beta are sums over rows by way of the workspace, in a fixed order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cuda/raw_stream.hpp"

#include "ops/layer_norm_input.hpp"

namespace trireme::ops::cuda {

using device::cuda::RawStream;

template <class T>
void layer_norm_forward(T* y,
                        float* mean,
                        float* rstd,
                        const LayerNormInput<T>& input,
                        const T* gamma,
                        const T* beta,
                        std::int64_t rows,
                        std::int64_t channels,
                        float epsilon,
                        RawStream stream);

/// What backward reads; dy, x = [rows, channels]. `workspace`: device::cuda::workspace_of(stream).
template <class T>
struct LayerNormSaved {
  const T* dy;
  const T* x;
  const T* gamma;
  const float* mean;
  const float* rstd;
  std::byte* workspace;
  std::size_t workspace_bytes;
};
/// [channels] each, added to; null ones are left out.
struct LayerNormGradients {
  float* gamma;
  float* beta;
  float* bias;
};
template <class T>
void layer_norm_backward(T* dx,
                         const LayerNormGradients& to,
                         const LayerNormSaved<T>& saved,
                         std::int64_t rows,
                         std::int64_t channels,
                         bool accumulate,
                         RawStream stream);

}  // namespace trireme::ops::cuda
