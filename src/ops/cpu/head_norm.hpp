// SPDX-License-Identifier: Apache-2.0
// CPU bodies of head_norm.hpp; T is float or Bf16. Null `raw` and `rstd`: nothing is kept; null
// gradients of gains: there are none.
#pragma once

#include "ops/head_norm_rows.hpp"

namespace trireme::ops::cpu {

template <class T>
void head_norm_forward(T* packed, T* raw, float* rstd, const HeadNormRows<T>& all);

template <class T>
void head_norm_backward(T* d_packed,
                        float* d_query_gain,
                        float* d_key_gain,
                        const T* raw,
                        const float* rstd,
                        const HeadNormRows<T>& all);

}  // namespace trireme::ops::cpu
