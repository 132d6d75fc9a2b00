// SPDX-License-Identifier: Apache-2.0
// CUDA bodies of cross_entropy.hpp; T is float or Bf16. Shapes: logits, gradient = [rows,
// vocabulary], targets, losses = [rows]. A block computes a row; its sums are fp32 and in a fixed
// order.
#pragma once

#include <cstdint>

#include "device/cuda/raw_stream.hpp"

#include "ops/loss_terms.hpp"

namespace trireme::ops::cuda {

using device::cuda::RawStream;

template <class T>
void cross_entropy_forward(float* losses,
                           const T* logits,
                           const std::int32_t* targets,
                           const LossTerms& terms,
                           std::int64_t rows,
                           std::int64_t vocabulary,
                           RawStream stream);
/// `gradient` may be `logits`. D is T or Bf16.
template <class T, class D>
void cross_entropy_forward_backward(float* losses,
                                    D* gradient,
                                    const T* logits,
                                    const std::int32_t* targets,
                                    const LossTerms& terms,
                                    float scale,
                                    std::int64_t rows,
                                    std::int64_t vocabulary,
                                    RawStream stream);
void cap_logits(float* logits, float cap, std::int64_t count, RawStream stream);

}  // namespace trireme::ops::cuda
