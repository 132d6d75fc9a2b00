// SPDX-License-Identifier: Apache-2.0
// CPU body of adamw.hpp; T and M, the moments' type, are float or Bf16.
#pragma once

#include <cstdint>

#include "ops/optimizer/adamw.hpp"

namespace trireme::ops::cpu {

template <class T, class M>
void adamw(T* parameter,
           float* master,
           M* m,
           M* v,
           const float* gradient,
           const AdamwStep& step,
           const MomentRounding& rounding,
           float scale,
           std::int64_t count);

}  // namespace trireme::ops::cpu
