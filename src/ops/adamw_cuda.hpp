// SPDX-License-Identifier: Apache-2.0
// CUDA body of adamw.hpp; T is float or Bf16. `parameter` may be `master`.
#pragma once

#include <cstdint>

#include "device/cuda/launch.hpp"

#include "ops/adamw_step.hpp"

namespace trireme::ops::cuda {

template <class T>
void adamw(T* parameter,
           float* master,
           float* m,
           float* v,
           const float* gradient,
           const AdamwStep& step,
           std::int64_t count,
           device::cuda::RawStream stream);

}  // namespace trireme::ops::cuda
