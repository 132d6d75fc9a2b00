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
  TRIREME_EXPECT(rstd.elements >= 1 && x.elements % rstd.elements == 0,
                 "{} elements are not {} rows", x.elements, rstd.elements);
  const Size size{rstd.elements, x.elements / rstd.elements};
  TRIREME_EXPECT(gamma.empty() || (gamma.elements == size.channels && gamma.dtype == x.dtype),
                 "gamma is {} {} for {} channels of {}", gamma.elements, name(gamma.dtype),
                 size.channels, name(x.dtype));
  TRIREME_EXPECT(mean.empty() || mean.elements == size.rows, "{} means of {} rows", mean.elements,
                 size.rows);
  return size;
}

template <class T>
const T* pointer_or_null(ConstView view) {
  return view.empty() ? nullptr : view.as<T>();
}
float* pointer_or_null(View view) {
  return view.empty() ? nullptr : view.as<float>();
}

/// What both forward operations write and read beside their input.
struct Forward {
  View y, mean, rstd;
  ConstView gamma, beta;
  float epsilon;
};

template <class T>
void forward(const Forward& f,
             const LayerNormInput<T>& input,
             const Size& size,
             device::Stream& stream) {
  const T* scale = pointer_or_null<T>(f.gamma);
  const T* shift = pointer_or_null<T>(f.beta);
  float* means = pointer_or_null(f.mean);
  if (on_cuda(stream, [&](auto raw) {
        cuda::layer_norm_forward(f.y.as<T>(), means, f.rstd.as<float>(), input, scale, shift,
                                 size.rows, size.channels, f.epsilon, raw);
      }))
    return;
  on_cpu(stream, "layer_norm_forward")
      .run([to = f.y.as<T>(), means, r = f.rstd.as<float>(), input, scale, shift, size,
            epsilon = f.epsilon] {
        cpu::layer_norm_forward(to, means, r, input, scale, shift, size.rows, size.channels,
                                epsilon);
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
  const float* means = pointer_or_null<float>(mean);
  TRIREME_EXPECT(dx.elements == x.elements && dx.dtype == x.dtype && dy.elements == x.elements &&
                     dy.dtype == x.dtype,
                 "dx is {} {}, dy is {} {}, x is {} {}", dx.elements, name(dx.dtype), dy.elements,
                 name(dy.dtype), x.elements, name(x.dtype));
  TRIREME_EXPECT(dgamma.elements == gamma.elements, "{} gradients of {} gains", dgamma.elements,
                 gamma.elements);
  for (const View gradient : {dbeta, dbias})
    TRIREME_EXPECT(gradient.empty() || gradient.elements == size.channels,
                   "{} gradients for {} channels", gradient.elements, size.channels);
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (on_cuda(stream, [&](auto raw) {
          const cuda::LayerNormSaved<T> saved{dy.as<T>(),
                                              x.as<T>(),
                                              pointer_or_null<T>(gamma),
                                              means,
                                              rstd.as<float>(),
                                              device::cuda::workspace_of(stream),
                                              device::cuda::workspace_bytes};
          const cuda::LayerNormGradients to{pointer_or_null(dgamma), pointer_or_null(dbeta),
                                            pointer_or_null(dbias)};
          cuda::layer_norm_backward(dx.as<T>(), to, saved, size.rows, size.channels, accumulate,
                                    raw);
        }))
      return;
    const cpu::LayerNormSaved<T> saved{dy.as<T>(), x.as<T>(), pointer_or_null<T>(gamma), means,
                                       rstd.as<float>()};
    on_cpu(stream, "layer_norm_backward")
        .run([to = dx.as<T>(), dscale = pointer_or_null(dgamma), dshift = pointer_or_null(dbeta),
              saved, size, accumulate] {
          cpu::layer_norm_backward(to, dscale, dshift, saved, size.rows, size.channels, accumulate);
        });
    if (!dbias.empty())
      bias_backward(dbias, dx, stream);
  });
}

}  // namespace trireme::ops
