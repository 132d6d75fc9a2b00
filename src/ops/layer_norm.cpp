// SPDX-License-Identifier: Apache-2.0
#include "ops/layer_norm.hpp"

#include "ops/cpu/layer_norm.hpp"
#include "ops/cuda/layer_norm.hpp"
#include "ops/dispatch.hpp"
#include "ops/elementwise.hpp"

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
  TRIREME_EXPECT((mean.empty() || mean.elements == size.rows) && rstd.elements == size.rows,
                 "{} means and {} deviations of {} rows", mean.elements, rstd.elements, size.rows);
  return size;
}

/// What both forward operations write and read beside their input.
struct Forward {
  View y, mean, rstd;
  ConstView gamma, beta;
  float epsilon;

  [[nodiscard]] float* mean_or_null() const { return mean.empty() ? nullptr : mean.as<float>(); }
};

template <class T>
void forward(const Forward& f,
             const LayerNormInput<T>& input,
             const Size& size,
             device::Stream& stream) {
  const T* shift = f.beta.empty() ? nullptr : f.beta.as<T>();
  if (on_cuda(stream, [&](auto raw) {
        cuda::layer_norm_forward(f.y.as<T>(), f.mean_or_null(), f.rstd.as<float>(), input,
                                 f.gamma.as<T>(), shift, size.rows, size.channels, f.epsilon, raw);
      }))
    return;
  on_cpu(stream, "layer_norm_forward")
      .run([to = f.y.as<T>(), m = f.mean_or_null(), r = f.rstd.as<float>(), input,
            scale = f.gamma.as<T>(), shift, size, epsilon = f.epsilon] {
        cpu::layer_norm_forward(to, m, r, input, scale, shift, size.rows, size.channels, epsilon);
      });
}

/// The sizes of a forward operation, once it is seen that they agree.
Size checked(const Forward& f, ConstView x) {
  const Size size = size_of(x, f.gamma, f.mean, f.rstd);
  TRIREME_EXPECT(f.y.elements == x.elements && f.y.dtype == x.dtype, "y is {} {}, x is {} {}",
                 f.y.elements, name(f.y.dtype), x.elements, name(x.dtype));
  TRIREME_EXPECT(f.beta.empty() || (f.beta.elements == size.channels && f.beta.dtype == x.dtype),
                 "beta is {} {} for {} channels", f.beta.elements, name(f.beta.dtype),
                 size.channels);
  return size;
}

}  // namespace

void layer_norm_forward(View y,
                        View mean,
                        View rstd,
                        ConstView x,
                        ConstView gamma,
                        ConstView beta,
                        float epsilon,
                        device::Stream& stream) {
  const Forward f{y, mean, rstd, gamma, beta, epsilon};
  const Size size = checked(f, x);
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    forward(f, LayerNormInput<T>{.x = x.as<T>()}, size, stream);
  });
}

void residual_layer_norm_forward(View sum,
                                 View y,
                                 View mean,
                                 View rstd,
                                 ConstView x,
                                 ConstView branch,
                                 ConstView gamma,
                                 ConstView beta,
                                 std::int64_t rows_per_sample,
                                 const Dropout& dropout,
                                 float epsilon,
                                 device::Stream& stream) {
  const Forward f{y, mean, rstd, gamma, beta, epsilon};
  const Size size = checked(f, x);
  for (const ConstView other : {ConstView(sum), branch})
    TRIREME_EXPECT(other.elements == x.elements && other.dtype == x.dtype,
                   "{} {} beside x of {} {}", other.elements, name(other.dtype), x.elements,
                   name(x.dtype));
  TRIREME_EXPECT(rows_per_sample >= 1 && size.rows % rows_per_sample == 0,
                 "{} rows are not samples of {}", size.rows, rows_per_sample);
  expect_valid(dropout);
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    forward(f, LayerNormInput<T>{x.as<T>(), branch.as<T>(), sum.as<T>(), rows_per_sample, dropout},
            size, stream);
  });
}

void layer_norm_backward(View dx,
                         View dgamma,
                         View dbeta,
                         View dbias,
                         ConstView dy,
                         ConstView x,
                         ConstView gamma,
                         ConstView mean,
                         ConstView rstd,
                         bool accumulate,
                         device::Stream& stream) {
  const Size size = size_of(x, gamma, mean, rstd);
  const float* means = mean.empty() ? nullptr : mean.as<float>();
  TRIREME_EXPECT(dx.elements == x.elements && dx.dtype == x.dtype && dy.elements == x.elements &&
                     dy.dtype == x.dtype,
                 "dx is {} {}, dy is {} {}, x is {} {}", dx.elements, name(dx.dtype), dy.elements,
                 name(dy.dtype), x.elements, name(x.dtype));
  for (const View gradient :
       {dgamma, dbeta.empty() ? dgamma : dbeta, dbias.empty() ? dgamma : dbias})
    TRIREME_EXPECT(gradient.elements == size.channels, "{} gradients for {} channels",
                   gradient.elements, size.channels);
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (on_cuda(stream, [&](auto raw) {
          const cuda::LayerNormSaved<T> saved{dy.as<T>(),
                                              x.as<T>(),
                                              gamma.as<T>(),
                                              means,
                                              rstd.as<float>(),
                                              device::cuda::workspace_of(stream),
                                              device::cuda::workspace_bytes};
          const cuda::LayerNormGradients to{dgamma.as<float>(),
                                            dbeta.empty() ? nullptr : dbeta.as<float>(),
                                            dbias.empty() ? nullptr : dbias.as<float>()};
          cuda::layer_norm_backward(dx.as<T>(), to, saved, size.rows, size.channels, accumulate,
                                    raw);
        }))
      return;
    const cpu::LayerNormSaved<T> saved{dy.as<T>(), x.as<T>(), gamma.as<T>(), means,
                                       rstd.as<float>()};
    on_cpu(stream, "layer_norm_backward")
        .run([to = dx.as<T>(), dscale = dgamma.as<float>(),
              dshift = dbeta.empty() ? nullptr : dbeta.as<float>(), saved, size, accumulate] {
          cpu::layer_norm_backward(to, dscale, dshift, saved, size.rows, size.channels, accumulate);
        });
    if (!dbias.empty())
      bias_backward(dbias, dx, stream);
  });
}

}  // namespace trireme::ops
