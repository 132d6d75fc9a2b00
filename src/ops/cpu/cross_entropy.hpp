// SPDX-License-Identifier: Apache-2.0
// CPU bodies of cross_entropy.hpp; T is float or Bf16.
#pragma once

#include <cstdint>

namespace trireme::ops::cpu {

template <class T>
void cross_entropy_forward(float* losses,
                           const T* logits,
                           const std::int32_t* targets,
                           std::int64_t rows,
                           std::int64_t vocabulary);
/// `gradient` may be `logits`.
template <class T, class D>
void cross_entropy_forward_backward(float* losses,
                                    D* gradient,
                                    const T* logits,
                                    const std::int32_t* targets,
                                    float scale,
                                    std::int64_t rows,
                                    std::int64_t vocabulary);

}  // namespace trireme::ops::cpu
