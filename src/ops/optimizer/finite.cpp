// SPDX-License-Identifier: Apache-2.0
#include "ops/optimizer/finite.hpp"

#include "ops/cpu/optimizer/finite.hpp"
#include "ops/cuda/reductions.hpp"
#include "ops/dispatch.hpp"

namespace trireme::ops {

void find_not_finite(std::int64_t& first,
                     ConstView values,
                     device::Stream& stream,
                     const GradientNorm* norm) {
  if (on_cuda(stream, [&](auto raw) {
        cuda::find_not_finite(&first, values.as<float>(), values.elements,
                              device::cuda::workspace_of(stream), norm, raw);
      }))
    return;
  on_cpu(stream, "find_not_finite")
      .run([to = &first, from = values.as<float>(), n = values.elements, norm] {
        if (norm == nullptr || norm->finite == 0)
          *to = cpu::find_not_finite(from, n);
      });
}

}  // namespace trireme::ops
