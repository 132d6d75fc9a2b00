// SPDX-License-Identifier: Apache-2.0
#include "ops/elementwise.hpp"

#include "ops/calls/elementwise.hpp"
#include "ops/dispatch.hpp"

namespace trireme::ops {
namespace {

void expect_alike(ConstView a, ConstView b, const char* operation) {
  TRIREME_EXPECT(a.elements == b.elements && a.dtype == b.dtype, "{} of {} {} and {} {}", operation,
                 a.elements, name(a.dtype), b.elements, name(b.dtype));
}

void expect_samples(ConstView x, std::int64_t per_sample, const Dropout& dropout) {
  TRIREME_EXPECT(per_sample >= 1 && x.elements % per_sample == 0,
                 "{} elements are not samples of {}", x.elements, per_sample);
  expect_valid(dropout);
}

}  // namespace

void gelu_forward(View y, ConstView x, device::Stream& stream) {
  expect_alike(y, x, "gelu_forward");
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(GeluForward<T>{y.as<T>(), x.as<T>(), x.elements}, stream);
  });
}

void gelu_backward(View dx, ConstView dy, ConstView x, device::Stream& stream) {
  expect_alike(dx, x, "gelu_backward");
  expect_alike(dy, x, "gelu_backward");
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(GeluBackward<T>{dx.as<T>(), dy.as<T>(), x.as<T>(), x.elements}, stream);
  });
}

void dropout_backward(View dbranch,
                      ConstView dy,
                      std::int64_t elements_per_sample,
                      const Dropout& dropout,
                      device::Stream& stream) {
  expect_alike(dbranch, dy, "dropout_backward");
  expect_samples(dy, elements_per_sample, dropout);
  with_float_type(dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(DropoutBackward<T>{dbranch.as<T>(), dy.as<T>(), dy.elements / elements_per_sample,
                               elements_per_sample, dropout},
            stream);
  });
}

void bias_backward(View db, ConstView dy, device::Stream& stream) {
  TRIREME_EXPECT(db.elements >= 1 && dy.elements % db.elements == 0,
                 "{} gradients are not rows of {}", dy.elements, db.elements);
  with_float_type(dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(BiasBackward<T>{db.as<float>(), dy.as<T>(), dy.elements / db.elements, db.elements},
            stream);
  });
}

void add(View sum, ConstView term, device::Stream& stream) {
  expect_alike(sum, term, "add");
  enqueue(Add{sum.as<float>(), term.as<float>(), sum.elements}, stream);
}

void cast(View to, ConstView from, device::Stream& stream) {
  TRIREME_EXPECT(to.elements == from.elements, "cast of {} elements to {}", from.elements,
                 to.elements);
  with_float_type(to.dtype, [&](auto zero_to) {
    with_float_type(from.dtype, [&](auto zero_from) {
      using To = decltype(zero_to);
      using From = decltype(zero_from);
      enqueue(Cast<To, From>{to.as<To>(), from.as<From>(), to.elements}, stream);
    });
  });
}

}  // namespace trireme::ops
