// SPDX-License-Identifier: Apache-2.0
// CPU body of adamw.hpp; T is float or Bf16.
#pragma once

#include <cstdint>

#include "ops/optimizer/adamw.hpp"

namespace trireme::ops::cpu {

template <class T>
void adamw(T* parameter,
           float* master,
           float* m,
           float* v,
           const float* gradient,
           const AdamwStep& step,
           float scale,
           std::int64_t count);

}  // namespace trireme::ops::cpu
