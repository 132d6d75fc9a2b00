// SPDX-License-Identifier: Apache-2.0
// CPU bodies of cross_entropy.hpp; T is float or Bf16. One thread computes a row: its maximum, the
// sum of exponentials against it, and the gradient, three passes of which the later two find the
// row in the cache.
#pragma once

#include <cstdint>

#include "ops/loss_terms.hpp"

namespace trireme::ops::cpu {

template <class T>
void cross_entropy_forward(float* losses,
                           const T* logits,
                           const std::int32_t* targets,
                           const LossTerms& terms,
                           std::int64_t rows,
                           std::int64_t vocabulary);
/// `gradient` may be `logits`, row by row. `scale` is a factor of the gradient.
template <class T, class D>
void cross_entropy_forward_backward(float* losses,
                                    D* gradient,
                                    const T* logits,
                                    const std::int32_t* targets,
                                    const LossTerms& terms,
                                    float scale,
                                    std::int64_t rows,
                                    std::int64_t vocabulary);
/// logits = cap · tanh(logits / cap), in place.
void cap_logits(float* logits, float cap, std::int64_t count);

}  // namespace trireme::ops::cpu
