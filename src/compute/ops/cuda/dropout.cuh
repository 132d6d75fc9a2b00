// SPDX-License-Identifier: Apache-2.0
// Dropout inside kernels: the mask of dropout_factor(), four elements per draw where possible.
#pragma once

#include "ops/cuda/loops.cuh"
#include "ops/dropout.hpp"

namespace trireme::ops::cuda {

/// Multiplies the values of elements [first, first + N) of batch row `sample` by their factors.
template <int N>
__device__ inline void drop(float (&values)[N],
                            const Dropout& d,
                            std::int64_t sample,
                            std::int64_t first) {
  if (!d.active())
    return;
  const auto row = static_cast<std::uint64_t>(sample), element = static_cast<std::uint64_t>(first);
  if constexpr (N % 4 == 0) {
    if (element % 4 == 0) {
      const float kept = 1.0F / (1.0F - d.rate);
      for (int group = 0; group < N / 4; ++group) {
        const Words4 words = philox(d.key, (std::uint64_t{d.site} << 40U) + element / 4 + group,
                                    *d.first_sample + row);
        for (int i = 0; i < 4; ++i)
          values[4 * group + i] *= uniform(words.w[i]) < d.rate ? 0.0F : kept;
      }
      return;
    }
  }
  for (int i = 0; i < N; ++i) values[i] *= dropout_factor(d, row, element + i);
}

}  // namespace trireme::ops::cuda
