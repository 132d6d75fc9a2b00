// SPDX-License-Identifier: Apache-2.0
// Moments in fp32 or bf16 (optimizer/moment_rounding.hpp) as kernels write them.
#pragma once

#include "ops/cuda/loops.cuh"
#include "ops/optimizer/moment_rounding.hpp"

namespace trireme::ops::cuda {

/// `random`: below 2^16, of the moment's word; not read in fp32.
template <class M>
__device__ inline M kept_moment(float value, std::uint32_t random);
template <>
__device__ inline float kept_moment<float>(float value, std::uint32_t) {
  return value;
}
template <>
__device__ inline Bf16 kept_moment<Bf16>(float value, std::uint32_t random) {
  Bf16 kept;
  kept.bits = static_cast<std::uint16_t>(rounded_at_random(__float_as_uint(value), random));
  return kept;
}

/// moment_word() of elements [i, i + N); nothing where moments are fp32.
template <int N, class M>
__device__ inline Words4 words(const MomentRounding& rounding, std::int64_t i) {
  Words4 all{};
  if constexpr (sizeof(M) == sizeof(Bf16)) {
    if (N == 4 && (rounding.first + i) % 4 == 0)
      return philox(rounding.key, rounding.counter(i), rounding.step);
    for (int k = 0; k < N; ++k) all.w[k] = moment_word(rounding, i + k);
  }
  return all;
}

}  // namespace trireme::ops::cuda
