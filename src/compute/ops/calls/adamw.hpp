// SPDX-License-Identifier: Apache-2.0
// What AdamW does to one range of elements (optimizer/adamw.hpp); T and M, the moments' type, are
// float or Bf16. `parameter` may be `master`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/calls/call.hpp"
#include "ops/optimizer/adamw_step.hpp"
#include "ops/optimizer/moment_rounding.hpp"
#include "ops/optimizer/norm_and_scale.hpp"

namespace trireme::ops {

template <class T, class M>
struct AdamwRange {
  static constexpr const char* name = "adamw";
  T* parameter;
  float* master;
  M* m;
  M* v;
  const float* gradient;
  std::int64_t count;
  AdamwStep step;
  MomentRounding rounding;
};

namespace cpu {
/// `scale`: of the gradient, GradientNorm::scale.
template <class T, class M>
void run(Threads, const AdamwRange<T, M>& range, float scale);
}  // namespace cpu

namespace cuda {
/// In one launch.
inline constexpr std::size_t most_adamw_ranges = 30;
/// Not more than most_adamw_ranges, in one launch. `norm` lies on the GPU.
template <class T, class M>
void run(const Queue& queue, std::span<const AdamwRange<T, M>> ranges, const GradientNorm* norm);
}  // namespace cuda

}  // namespace trireme::ops
