// SPDX-License-Identifier: Apache-2.0
// CUDA body of adamw.hpp; T is float or Bf16. `parameter` may be `master`; `norm` lies on the GPU.
#pragma once

#include <cstdint>

#include "device/cuda/raw_stream.hpp"

#include "ops/norm_and_scale.hpp"
#include "ops/optimizer/adamw_step.hpp"

namespace trireme::ops::cuda {

template <class T>
void adamw(T* parameter,
           float* master,
           float* m,
           float* v,
           const float* gradient,
           const AdamwStep& step,
           const GradientNorm* norm,
           std::int64_t count,
           device::cuda::RawStream stream);

}  // namespace trireme::ops::cuda
