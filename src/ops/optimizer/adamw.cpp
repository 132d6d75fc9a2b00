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
           const GradientNorm& norm,
           device::Stream& stream) {
  const std::int64_t n = parameter.elements;
  TRIREME_EXPECT(
      master.elements == n && m.elements == n && v.elements == n && gradient.elements == n,
      "{} parameters, {} masters, {} and {} moments, {} gradients", n, master.elements, m.elements,
      v.elements, gradient.elements);
  with_float_type(parameter.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (on_cuda(stream, [&](auto raw) {
          cuda::adamw(parameter.as<T>(), master.as<float>(), m.as<float>(), v.as<float>(),
                      gradient.as<float>(), step, &norm, n, raw);
        }))
      return;
    on_cpu(stream, "adamw")
        .run([to = parameter.as<T>(), exact = master.as<float>(), first = m.as<float>(),
              second = v.as<float>(), from = gradient.as<float>(), step, norm = &norm, n] {
          if (norm->finite != 0)
            cpu::adamw(to, exact, first, second, from, step, norm->scale, n);
        });
  });
}

}  // namespace trireme::ops
