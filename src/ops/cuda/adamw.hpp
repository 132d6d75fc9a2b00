// SPDX-License-Identifier: Apache-2.0
// CUDA body of adamw.hpp; T and M, the moments' type, are float or Bf16. `parameter` may be `master`; `norm` lies on the GPU.
#pragma once

#include <cstdint>

#include "device/cuda/raw_stream.hpp"

#include "ops/optimizer/adamw_step.hpp"
#include "ops/optimizer/moment_rounding.hpp"
#include "ops/optimizer/norm_and_scale.hpp"

namespace trireme::ops::cuda {

template <class T, class M>
void adamw(T* parameter,
           float* master,
           M* m,
           M* v,
           const float* gradient,
           const AdamwStep& step,
           const MomentRounding& rounding,
           const GradientNorm* norm,
           std::int64_t count,
           device::cuda::RawStream stream);

}  // namespace trireme::ops::cuda
