// SPDX-License-Identifier: Apache-2.0
#include "ops/activations.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numbers>

#include "ops/tensors.hpp"

namespace trireme::test {
namespace {

using ops::Activation;

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

double gelu_slope(double x) {
  const double a = std::sqrt(2 / std::numbers::pi);
  const double t = std::tanh(a * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * a * (1 + 3 * 0.044715 * x * x);
}

double silu(double z) {
  return z / (1 + std::exp(-z));
}
double silu_slope(double z) {
  const double s = 1 / (1 + std::exp(-z));
  return s * (1 + z * (1 - s));
}

/// [rows, 2, columns] to [rows, columns].
Values swiglu(const Values& x, std::size_t columns) {
  Values y(x.size() / 2);
  for (std::size_t i = 0; i < y.size(); ++i) {
    const std::size_t gate = i / columns * 2 * columns + i % columns;
    y[i] = silu(x[gate]) * x[gate + columns];
  }
  return y;
}

Values swiglu_gradient(const Values& x, const Values& dy, std::size_t columns) {
  Values dx(x.size());
  for (std::size_t i = 0; i < dy.size(); ++i) {
    const std::size_t gate = i / columns * 2 * columns + i % columns;
    dx[gate] = dy[i] * x[gate + columns] * silu_slope(x[gate]);
    dx[gate + columns] = dy[i] * silu(x[gate]);
  }
  return dx;
}

class ActivationsTest : public OpsTest {
 protected:
  void check_swiglu(std::int64_t rows, std::int64_t columns) {
    SCOPED_TRACE(fmt::format("{} x {}", rows, columns));
    const std::int64_t n = rows * columns;
    auto xv = normals(1, 2 * n, 3);
    if (columns > 8)  // gates, one of which makes e^-z overflow fp32
      for (const auto& [at, gate] :
           {std::pair<std::size_t, double>{0, 0}, {1, 60}, {2, -60}, {3, 3e4}, {4, -3e4}})
        xv[at] = gate;
    xv = rounded_to(dtype(), xv);
    const auto dyv = rounded_to(dtype(), normals(2, n));
    const auto x = tensor(dtype(), xv), dy = tensor(dtype(), dyv);
    auto y = tensor(dtype(), n), dx = tensor(dtype(), 2 * n);
    run(
        ops::ActivationForward{
            .y = y.view(), .x = x.view(), .function = Activation::swiglu, .columns = columns},
        stream());
    run(ops::ActivationBackward{.dx = dx.view(),
                                .dy = dy.view(),
                                .x = x.view(),
                                .function = Activation::swiglu,
                                .columns = columns},
        stream());
    const auto wide = static_cast<std::size_t>(columns);
    const Values y_expected = swiglu(xv, wide), dx_expected = swiglu_gradient(xv, dyv, wide);
    const Values got_y = y.values(), got_dx = dx.values();
    // The values of a tensor differ widely in size, so each is compared separately.
    for (std::size_t i = 0; i < got_y.size(); ++i)
      ASSERT_NEAR(got_y[i], y_expected[i], tolerance().elementwise * (1 + std::abs(y_expected[i])))
          << i;
    for (std::size_t i = 0; i < got_dx.size(); ++i)
      ASSERT_NEAR(got_dx[i], dx_expected[i],
                  2 * tolerance().elementwise * (1 + std::abs(dx_expected[i])))
          << i;
  }
};

TEST_P(ActivationsTest, GeluAgreesWithReference) {
  for (const std::int64_t n : {1, 2, 15, 17, 255, 257, 16384, 16385, 40009}) {
    SCOPED_TRACE(n);
    auto xv = normals(1, n, 3);
    xv[0] = 0;
    if (n > 8) {
      xv[1] = 50;
      xv[2] = -50;
      xv[3] = 3e4;
      xv[4] = -3e4;
      xv[5] = 1e-20;
      xv[6] = -20;  // e^(-2u) overflows fp32 here, but the slope does not yet
    }
    xv = rounded_to(dtype(), xv);
    const auto dyv = rounded_to(dtype(), normals(2, n));
    Values y_expected(xv.size()), dx_expected(xv.size());
    for (std::size_t i = 0; i < xv.size(); ++i) {
      y_expected[i] = gelu(xv[i]);
      dx_expected[i] = dyv[i] * gelu_slope(xv[i]);
    }
    const auto x = tensor(dtype(), xv);
    auto y = tensor(dtype(), n), dx = tensor(dtype(), dyv);
    run(ops::ActivationForward{.y = y.view(), .x = x.view()}, stream());
    run(ops::ActivationBackward{.dx = dx.view(), .dy = dx.view(), .x = x.view()}, stream());
    const auto yv = y.values();
    for (std::size_t i = 0; i < xv.size(); ++i)
      ASSERT_NEAR(yv[i], y_expected[i], tolerance().elementwise * (1e-2 + std::abs(y_expected[i])))
          << "x = " << xv[i];
    expect_near(dx.values(), dx_expected, tolerance().elementwise, "dx");
  }
}

TEST_P(ActivationsTest, GeluByHand) {
  const auto x = tensor(dtype(), Values{0, 1, -1});
  auto y = tensor(dtype(), 3);
  run(ops::ActivationForward{.y = y.view(), .x = x.view()}, stream());
  expect_near(y.values(), {0, 0.841192, -0.158808}, std::max(2e-6, tolerance().elementwise), "y");
}

/// Every bf16 number, because some processors use tables for bf16.
TEST_P(ActivationsTest, GeluOfBf16IsThatOfFp32RoundedOnce) {
  if (dtype() != DType::bf16 || device().kind() != device::Kind::cpu)
    GTEST_SKIP() << "on a GPU, the compiler fuses multiplications and additions by dtype";
  Values xv, dyv;
  for (std::uint32_t bits = 0; bits < 1U << 16U; ++bits)
    if (const auto x = std::bit_cast<float>(bits << 16U); std::isfinite(x)) {
      xv.push_back(x);
      dyv.push_back(rounded_to(DType::bf16, {0.3})[0]);
    }
  std::array<std::array<Values, 2>, 2> results;  // for both dtypes: y, dx
  for (const auto type : {DType::f32, DType::bf16}) {
    const auto x = tensor(type, xv), dy = tensor(type, dyv);
    auto y = tensor(type, x.view().elements), dx = tensor(type, x.view().elements);
    run(ops::ActivationForward{.y = y.view(), .x = x.view()}, stream());
    run(ops::ActivationBackward{.dx = dx.view(), .dy = dy.view(), .x = x.view()}, stream());
    results[type == DType::bf16] = {y.values(), dx.values()};
  }
  for (std::size_t which : {0, 1})
    for (std::size_t i = 0; i < xv.size(); ++i) {
      const double fp32 = results[0][which][i], rounded = rounded_to(DType::bf16, {fp32})[0];
      // Hardware rounding treats numbers below 2^-126 as 0.
      if (std::abs(fp32) >= std::numeric_limits<float>::min()) {
        ASSERT_EQ(results[1][which][i], rounded) << (which == 0 ? "y" : "dx") << " of " << xv[i];
      }
    }
}

TEST_P(ActivationsTest, GeluKeepsNan) {
  const auto x = tensor(dtype(), Values{std::nan(""), 1}), dy = tensor(dtype(), Values{1, 1});
  auto y = tensor(dtype(), 2), dx = tensor(dtype(), 2);
  run(ops::ActivationForward{.y = y.view(), .x = x.view()}, stream());
  run(ops::ActivationBackward{.dx = dx.view(), .dy = dy.view(), .x = x.view()}, stream());
  EXPECT_TRUE(std::isnan(y.values()[0]));
  EXPECT_FALSE(std::isnan(y.values()[1]));
  EXPECT_FALSE(std::isnan(dx.values()[1]));
}

TEST_P(ActivationsTest, SquaredReluAgreesWithReference) {
  for (const std::int64_t n : {1, 2, 17, 255, 16385}) {
    auto xv = rounded_to(dtype(), normals(1, n, 3));
    xv[0] = 0;
    const auto dyv = rounded_to(dtype(), normals(2, n));
    Values y_expected(xv.size()), dx_expected(xv.size());
    for (std::size_t i = 0; i < xv.size(); ++i) {
      const double positive = std::max(0.0, xv[i]);
      y_expected[i] = positive * positive;
      dx_expected[i] = dyv[i] * 2 * positive;
    }
    const auto x = tensor(dtype(), xv);
    auto y = tensor(dtype(), n), dx = tensor(dtype(), dyv);
    run(ops::ActivationForward{.y = y.view(), .x = x.view(), .function = Activation::squared_relu},
        stream());
    run(
        ops::ActivationBackward{
            .dx = dx.view(), .dy = dx.view(), .x = x.view(), .function = Activation::squared_relu},
        stream());
    expect_near(y.values(), y_expected, tolerance().elementwise, "y");
    expect_near(dx.values(), dx_expected, tolerance().elementwise, "dx");
  }
}

TEST_P(ActivationsTest, SwigluAgreesWithReference) {
  for (const auto& [rows, columns] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 5}, {2, 64}, {7, 172}, {33, 600}})
    check_swiglu(rows, columns);
}

TEST_P(ActivationsTest, SwigluByHand) {
  const auto x = tensor(dtype(), Values{0, 1, 5, -2});
  auto y = tensor(dtype(), 2);
  run(
      ops::ActivationForward{
          .y = y.view(), .x = x.view(), .function = Activation::swiglu, .columns = 2},
      stream());
  expect_near(y.values(), {0, -2 * 0.7310586}, std::max(2e-6, tolerance().elementwise), "y");
}

TEST_P(ActivationsTest, TheyKeepNan) {
  const auto x = tensor(dtype(), Values{std::nan(""), 1, 1, 1});
  auto y = tensor(dtype(), 2), squares = tensor(dtype(), 4);
  run(
      ops::ActivationForward{
          .y = y.view(), .x = x.view(), .function = Activation::swiglu, .columns = 2},
      stream());
  run(
      ops::ActivationForward{
          .y = squares.view(), .x = x.view(), .function = Activation::squared_relu},
      stream());
  EXPECT_TRUE(std::isnan(y.values()[0]));
  EXPECT_FALSE(std::isnan(y.values()[1]));
  EXPECT_TRUE(std::isnan(squares.values()[0]));
}

TEST_P(ActivationsTest, DoesNotDependOnThreads) {
  const auto x = tensor(dtype(), normals(1, 2 * 150 * 301)),
             dy = tensor(dtype(), normals(2, 150 * 301));
  expect_same_on_threads([&] {
    auto y = tensor(dtype(), 150 * 301), dx = tensor(dtype(), 2 * 150 * 301);
    auto gelu = tensor(dtype(), 150 * 301), d_gelu = tensor(dtype(), 150 * 301);
    run(ops::ActivationForward{.y = gelu.view(), .x = dy.view()}, stream());
    run(ops::ActivationBackward{.dx = d_gelu.view(), .dy = dy.view(), .x = gelu.view()}, stream());
    run(
        ops::ActivationForward{
            .y = y.view(), .x = x.view(), .function = Activation::swiglu, .columns = 301},
        stream());
    run(ops::ActivationBackward{.dx = dx.view(),
                                .dy = dy.view(),
                                .x = x.view(),
                                .function = Activation::swiglu,
                                .columns = 301},
        stream());
    return joined({&y, &dx, &gelu, &d_gelu});
  });
}

TEST_P(ActivationsTest, RejectWrongViews) {
  const auto x = tensor(dtype(), 12), y = tensor(dtype(), 6), z = tensor(dtype(), 5);
  EXPECT_THROW(run(
                   ops::ActivationForward{
                       .y = y.view(), .x = y.view(), .function = Activation::swiglu, .columns = 3},
                   stream()),
               ContractError);
  EXPECT_THROW(run(
                   ops::ActivationForward{
                       .y = y.view(), .x = x.view(), .function = Activation::swiglu, .columns = 4},
                   stream()),
               ContractError);
  EXPECT_THROW(run(ops::ActivationBackward{.dx = y.view(),
                                           .dy = y.view(),
                                           .x = x.view(),
                                           .function = Activation::swiglu,
                                           .columns = 3},
                   stream()),
               ContractError);
  EXPECT_THROW(run(
                   ops::ActivationForward{
                       .y = z.view(), .x = y.view(), .function = Activation::squared_relu},
                   stream()),
               ContractError);
  const auto integers = tensor(DType::i32, 6);
  EXPECT_THROW(run(ops::ActivationForward{.y = z.view(), .x = y.view()}, stream()), ContractError);
  EXPECT_THROW(run(ops::ActivationForward{.y = integers.view(), .x = integers.view()}, stream()),
               ContractError);
}

/// Tests of the references themselves.
TEST(GeluReference, SlopeIsTheGradient) {
  for (const double x : {-3.0, -0.7, 0.0, 0.3, 2.0}) {
    expect_gradient([](const Values& at) { return gelu(at[0]); }, {x}, {gelu_slope(x)}, "slope");
  }
}

TEST(ActivationsReference, GradientsAreThoseOfFiniteDifferences) {
  const auto x = normals(1, 40), weights = normals(2, 20);
  const auto weighted = [&](const Values& at) {
    const Values y = swiglu(at, 5);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * weights[i];
    return sum;
  };
  expect_gradient(weighted, x, swiglu_gradient(x, weights, 5), "swiglu");
}

TRIREME_ON_BACKENDS(ActivationsTest);

}  // namespace
}  // namespace trireme::test
