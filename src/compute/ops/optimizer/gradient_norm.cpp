// SPDX-License-Identifier: Apache-2.0
#include "ops/optimizer/gradient_norm.hpp"

#include "ops/cuda/reductions.hpp"
#include "ops/dispatch.hpp"

namespace trireme::ops {

void gradient_norm(GradientNorm& norm,
                   ConstView squares,
                   const Clipping& clipping,
                   device::Stream& stream) {
  TRIREME_EXPECT(squares.elements == 1, "{} sums of squares", squares.elements);
  const auto* from = squares.as<double>();
  if (on_cuda(stream, [&](auto raw) { cuda::gradient_norm(&norm, from, clipping, raw); }))
    return;
  on_cpu(stream, "gradient_norm").run([to = &norm, from, clipping] {
    *to = norm_and_scale(*from, clipping);
  });
}

}  // namespace trireme::ops
