// SPDX-License-Identifier: Apache-2.0
// CUDA bodies of head_norm.hpp; T is float or Bf16. Null `raw` and `rstd`: nothing is kept; null
// gradients of gains: there are none. `workspace`: device::cuda::workspace_of(stream). A warp
// computes a head of a row; gradients of gains are sums over rows, by way of the workspace, in a
// fixed order.
#pragma once

#include <cstddef>

#include "device/cuda/raw_stream.hpp"

#include "ops/head_norm_rows.hpp"

namespace trireme::ops::cuda {

using device::cuda::RawStream;

template <class T>
void head_norm_forward(
    T* packed, T* raw, float* rstd, const HeadNormRows<T>& all, RawStream stream);

template <class T>
void head_norm_backward(T* d_packed,
                        float* d_query_gain,
                        float* d_key_gain,
                        const T* raw,
                        const float* rstd,
                        const HeadNormRows<T>& all,
                        std::byte* workspace,
                        std::size_t workspace_bytes,
                        RawStream stream);

}  // namespace trireme::ops::cuda
