// SPDX-License-Identifier: Apache-2.0
#include "ops/layer_norm.hpp"

#include "ops/dispatch.hpp"
#include "ops/layer_norm_cpu.hpp"
#include "ops/layer_norm_cuda.hpp"

namespace trireme::ops {
namespace {

struct Size {
  std::int64_t rows = 0, channels = 0;
};

Size size_of(ConstView x, ConstView gamma, ConstView mean, ConstView rstd) {
  TRIREME_EXPECT(gamma.elements >= 1 && x.elements % gamma.elements == 0,
                 "{} elements are not rows of {}", x.elements, gamma.elements);
  TRIREME_EXPECT(gamma.dtype == x.dtype, "gamma is {}, x is {}", name(gamma.dtype), name(x.dtype));
  const Size size{x.elements / gamma.elements, gamma.elements};
  TRIREME_EXPECT(mean.elements == size.rows && rstd.elements == size.rows,
                 "{} means and {} deviations of {} rows", mean.elements, rstd.elements, size.rows);
  return size;
}

}  // namespace

void layer_norm_forward(View y,
                        View mean,
                        View rstd,
                        ConstView x,
                        ConstView gamma,
                        ConstView beta,
                        device::Stream& stream) {
  const Size size = size_of(x, gamma, mean, rstd);
  TRIREME_EXPECT(y.elements == x.elements && y.dtype == x.dtype, "y is {} {}, x is {} {}",
                 y.elements, name(y.dtype), x.elements, name(x.dtype));
  TRIREME_EXPECT(beta.empty() || (beta.elements == size.channels && beta.dtype == x.dtype),
                 "beta is {} {} for {} channels", beta.elements, name(beta.dtype), size.channels);
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* shift = beta.empty() ? nullptr : beta.as<T>();
    if (on_cuda(stream, [&](auto raw) {
          cuda::layer_norm_forward(y.as<T>(), mean.as<float>(), rstd.as<float>(), x.as<T>(),
                                   gamma.as<T>(), shift, size.rows, size.channels, raw);
        }))
      return;
    on_cpu(stream, "layer_norm_forward")
        .run([to = y.as<T>(), m = mean.as<float>(), r = rstd.as<float>(), from = x.as<T>(),
              scale = gamma.as<T>(), shift, size] {
          cpu::layer_norm_forward(to, m, r, from, scale, shift, size.rows, size.channels);
        });
  });
}

void layer_norm_backward(View dx,
                         View dgamma,
                         View dbeta,
                         ConstView dy,
                         ConstView x,
                         ConstView gamma,
                         ConstView mean,
                         ConstView rstd,
                         bool accumulate,
                         device::Stream& stream) {
  const Size size = size_of(x, gamma, mean, rstd);
  TRIREME_EXPECT(dx.elements == x.elements && dx.dtype == x.dtype && dy.elements == x.elements &&
                     dy.dtype == x.dtype,
                 "dx is {} {}, dy is {} {}, x is {} {}", dx.elements, name(dx.dtype), dy.elements,
                 name(dy.dtype), x.elements, name(x.dtype));
  TRIREME_EXPECT(
      dgamma.elements == size.channels && (dbeta.empty() || dbeta.elements == size.channels),
      "{} and {} gradients for {} channels", dgamma.elements, dbeta.elements, size.channels);
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (on_cuda(stream, [&](auto raw) {
          const cuda::LayerNormSaved<T> saved{dy.as<T>(),
                                              x.as<T>(),
                                              gamma.as<T>(),
                                              mean.as<float>(),
                                              rstd.as<float>(),
                                              device::cuda::workspace_of(stream),
                                              device::cuda::workspace_bytes};
          cuda::layer_norm_backward(dx.as<T>(), dgamma.as<float>(),
                                    dbeta.empty() ? nullptr : dbeta.as<float>(), saved, size.rows,
                                    size.channels, accumulate, raw);
        }))
      return;
    const cpu::LayerNormSaved<T> saved{dy.as<T>(), x.as<T>(), gamma.as<T>(), mean.as<float>(),
                                       rstd.as<float>()};
    on_cpu(stream, "layer_norm_backward")
        .run([to = dx.as<T>(), dscale = dgamma.as<float>(),
              dshift = dbeta.empty() ? nullptr : dbeta.as<float>(), saved, size, accumulate] {
          cpu::layer_norm_backward(to, dscale, dshift, saved, size.rows, size.channels, accumulate);
        });
  });
}

}  // namespace trireme::ops
