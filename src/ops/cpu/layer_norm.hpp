// SPDX-License-Identifier: Apache-2.0
// CPU bodies of layer_norm.hpp; T is float or Bf16; gamma, beta and their gradients may be null,
// and so may mean: then nothing is subtracted from a row (rms_norm). Rows are divided among
// threads; the gradients of gamma and beta are sums over rows, which are cut into runs by shape
// alone and added up in order.
#pragma once

#include <cstdint>

#include "ops/layer_norm_input.hpp"

namespace trireme::ops::cpu {

template <class T>
void layer_norm_forward(T* y,
                        float* mean,
                        float* rstd,
                        const LayerNormInput<T>& input,
                        const T* gamma,
                        const T* beta,
                        std::int64_t rows,
                        std::int64_t channels,
                        float epsilon);

/// What backward reads; dy, x = [rows, channels].
template <class T>
struct LayerNormSaved {
  const T* dy;
  const T* x;
  const T* gamma;
  const float* mean;
  const float* rstd;

  [[nodiscard]] float mean_of(std::int64_t row) const { return mean != nullptr ? mean[row] : 0.0F; }
};
template <class T>
void layer_norm_backward(T* dx,
                         float* dgamma,
                         float* dbeta,
                         const LayerNormSaved<T>& saved,
                         std::int64_t rows,
                         std::int64_t channels,
                         bool accumulate);

}  // namespace trireme::ops::cpu
