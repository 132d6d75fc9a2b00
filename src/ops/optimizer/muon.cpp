// SPDX-License-Identifier: Apache-2.0
#include "ops/optimizer/muon.hpp"

#include "ops/cpu/optimizer/muon.hpp"
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
    on_cpu(stream, "muon_direction")
        .run([g = gradient.as<float>(), first = m.as<M>(), step, rounding, norm = &norm,
              n = gradient.elements] {
          if (norm->finite != 0)
            cpu::muon_direction(g, first, step, rounding, norm->scale, n);
        });
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
    on_cpu(stream, "muon_update")
        .run([to = parameter.as<T>(), exact = master.as<float>(), from = direction.as<float>(),
              step, norm = &norm, n] {
          if (norm->finite != 0)
            cpu::muon_update(to, exact, from, step, n);
        });
  });
}

}  // namespace trireme::ops
