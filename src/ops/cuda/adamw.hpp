// SPDX-License-Identifier: Apache-2.0
// CUDA body of adamw.hpp; T and M, the moments' type, are float or Bf16. `parameter` may be
// `master`; `norm` lies on the GPU.
#pragma once

#include <cstdint>
#include <span>

#include "device/cuda/raw_stream.hpp"

#include "ops/optimizer/adamw_step.hpp"
#include "ops/optimizer/moment_rounding.hpp"
#include "ops/optimizer/norm_and_scale.hpp"

namespace trireme::ops::cuda {

template <class T, class M>
struct AdamwRange {
  T* parameter;
  float* master;
  M* m;
  M* v;
  const float* gradient;
  std::int64_t count;
  AdamwStep step;
  MomentRounding rounding;
};
/// In one launch.
inline constexpr std::size_t most_adamw_ranges = 30;

/// Not more than most_adamw_ranges, in one launch.
template <class T, class M>
void adamw(std::span<const AdamwRange<T, M>> ranges,
           const GradientNorm* norm,
           device::cuda::RawStream stream);

}  // namespace trireme::ops::cuda
