// SPDX-License-Identifier: Apache-2.0
#include "ops/optimizer/muon.hpp"

#include "ops/calls/muon.hpp"
#include "ops/dispatch.hpp"

namespace trireme::ops {

void muon_direction(View gradient,
                    View m,
                    const MuonStep& step,
                    const MomentRounding& rounding,
                    const GradientNorm& norm,
                    device::Stream& stream) {
  TRIREME_EXPECT(m.elements == gradient.elements, "{} moments, {} gradients", m.elements,
                 gradient.elements);
  with_float_type(m.dtype, [&](auto zero) {
    using M = decltype(zero);
    enqueue(
        MuonDirection<M>{gradient.as<float>(), m.as<M>(), step, rounding, &norm, gradient.elements},
        stream);
  });
}

void muon_update(View parameter,
                 View master,
                 ConstView direction,
                 const MuonStep& step,
                 const GradientNorm& norm,
                 device::Stream& stream) {
  const std::int64_t n = parameter.elements;
  TRIREME_EXPECT(master.elements == n && direction.elements == n,
                 "{} parameters, {} masters, {} directions", n, master.elements,
                 direction.elements);
  with_float_type(parameter.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(
        MuonUpdate<T>{parameter.as<T>(), master.as<float>(), direction.as<float>(), step, &norm, n},
        stream);
  });
}

}  // namespace trireme::ops
