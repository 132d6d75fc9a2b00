// SPDX-License-Identifier: Apache-2.0
#include "ops/optimizer/adamw.hpp"

#include "ops/cpu/optimizer/adamw.hpp"
#include "ops/cuda/adamw.hpp"
#include "ops/dispatch.hpp"

namespace trireme::ops {

void adamw(View parameter,
           View master,
           View m,
           View v,
           ConstView gradient,
           const AdamwStep& step,
           const MomentRounding& rounding,
           const GradientNorm& norm,
           device::Stream& stream) {
  const std::int64_t n = parameter.elements;
  TRIREME_EXPECT(
      master.elements == n && m.elements == n && v.elements == n && gradient.elements == n,
      "{} parameters, {} masters, {} and {} moments, {} gradients", n, master.elements, m.elements,
      v.elements, gradient.elements);
  with_float_type(parameter.dtype, [&](auto parameter_zero) {
    with_float_type(m.dtype, [&](auto moment_zero) {
      using T = decltype(parameter_zero);
      using M = decltype(moment_zero);
      if (on_cuda(stream, [&](auto raw) {
            cuda::adamw(parameter.as<T>(), master.as<float>(), m.as<M>(), v.as<M>(),
                        gradient.as<float>(), step, rounding, &norm, n, raw);
          }))
        return;
      on_cpu(stream, "adamw")
          .run([to = parameter.as<T>(), exact = master.as<float>(), first = m.as<M>(),
                second = v.as<M>(), from = gradient.as<float>(), step, rounding, norm = &norm, n] {
            if (norm->finite != 0)
              cpu::adamw(to, exact, first, second, from, step, rounding, norm->scale, n);
          });
    });
  });
}

}  // namespace trireme::ops
