// SPDX-License-Identifier: Apache-2.0
#include "ops/layer_norm.hpp"

#include "ops/calls/layer_norm.hpp"
#include "ops/dispatch.hpp"

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

/// What both forward operations write and read beside their input.
struct Forward {
  View y, mean, rstd;
  ConstView gamma, beta;
  float epsilon;

  template <class T>
  [[nodiscard]] LayerNormForward<T> call_of(ConstView x, const Size& size) const {
    return {.y = y.as<T>(),
            .mean = pointer_or_null<float>(mean),
            .rstd = rstd.as<float>(),
            .x = x.as<T>(),
            .gamma = pointer_or_null<T>(gamma),
            .beta = pointer_or_null<T>(beta),
            .rows = size.rows,
            .channels = size.channels,
            .epsilon = epsilon};
  }
};

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
  with_float_type(x.dtype, [&](auto zero) { enqueue(f.call_of<decltype(zero)>(x, size), stream); });
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
    LayerNormForward<T> call = f.call_of<T>(x, size);
    call.branch = branch.as<T>();
    call.sum = sum.as<T>();
    call.rows_per_sample = rows_per_sample;
    call.dropout = dropout;
    enqueue(call, stream);
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
    enqueue(LayerNormBackward<T>{.dx = dx.as<T>(),
                                 .dgamma = pointer_or_null<float>(dgamma),
                                 .dbeta = pointer_or_null<float>(dbeta),
                                 .dbias = pointer_or_null<float>(dbias),
                                 .dy = dy.as<T>(),
                                 .x = x.as<T>(),
                                 .gamma = pointer_or_null<T>(gamma),
                                 .mean = pointer_or_null<float>(mean),
                                 .rstd = rstd.as<float>(),
                                 .rows = size.rows,
                                 .channels = size.channels,
                                 .accumulate = accumulate},
            stream);
  });
}

}  // namespace trireme::ops
