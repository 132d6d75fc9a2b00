// SPDX-License-Identifier: Apache-2.0
// CUDA bodies of cross_entropy.hpp; T is float or Bf16.
#pragma once

#include <cstdint>

#include "device/cuda/raw_stream.hpp"

namespace trireme::ops::cuda {

using device::cuda::RawStream;

template <class T>
void cross_entropy_forward(float* losses,
                           const T* logits,
                           const std::int32_t* targets,
                           std::int64_t rows,
                           std::int64_t vocabulary,
                           RawStream stream);
/// `gradient` may be `logits`. D is T or Bf16.
template <class T, class D>
void cross_entropy_forward_backward(float* losses,
                                    D* gradient,
                                    const T* logits,
                                    const std::int32_t* targets,
                                    float scale,
                                    std::int64_t rows,
                                    std::int64_t vocabulary,
                                    RawStream stream);

}  // namespace trireme::ops::cuda
