// SPDX-License-Identifier: Apache-2.0
#include "ops/layer_norm.hpp"

#include "ops/tensors.hpp"

namespace trireme::test {
namespace {

struct Gradients {
  Values dx, dgamma, dbeta;
  double largest_term = 0;  ///< of dx, which is a difference
};

struct NormReference {
  std::size_t rows, channels;

  struct Moments {
    double mean, rstd;
  };
  [[nodiscard]] Moments moments(const Values& x, std::size_t r) const {
    double mean = 0, variance = 0;
    for (std::size_t c = 0; c < channels; ++c)
      mean += x[r * channels + c] / static_cast<double>(channels);
    for (std::size_t c = 0; c < channels; ++c)
      variance += std::pow(x[r * channels + c] - mean, 2) / static_cast<double>(channels);
    return {mean, 1 / std::sqrt(variance + 1e-5)};
  }
  [[nodiscard]] Values forward(const Values& x, const Values& gamma, const Values& beta) const {
    Values y(x.size());
    for (std::size_t r = 0; r < rows; ++r) {
      const auto [mean, rstd] = moments(x, r);
      for (std::size_t c = 0; c < channels; ++c)
        y[r * channels + c] =
            (x[r * channels + c] - mean) * rstd * gamma[c] + (beta.empty() ? 0 : beta[c]);
    }
    return y;
  }
  [[nodiscard]] Gradients backward(const Values& x, const Values& gamma, const Values& dy) const {
    Gradients g{Values(x.size()), Values(channels), Values(channels), 0};
    const auto n = static_cast<double>(channels);
    for (std::size_t r = 0; r < rows; ++r) {
      const auto [mean, rstd] = moments(x, r);
      double sum = 0, product = 0;
      for (std::size_t c = 0; c < channels; ++c) {
        const std::size_t i = r * channels + c;
        const double normal = (x[i] - mean) * rstd;
        sum += dy[i] * gamma[c] / n;
        product += dy[i] * gamma[c] * normal / n;
        g.dgamma[c] += dy[i] * normal;
        g.dbeta[c] += dy[i];
      }
      for (std::size_t c = 0; c < channels; ++c) {
        const std::size_t i = r * channels + c;
        g.largest_term = std::max(g.largest_term, rstd * std::abs(dy[i] * gamma[c]));
        g.dx[i] = rstd * (dy[i] * gamma[c] - sum - (x[i] - mean) * rstd * product);
      }
    }
    return g;
  }
};

Values plus(Values a, const Values& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

class LayerNormTest : public OpsTest {
 protected:
  void check(std::int64_t rows, std::int64_t channels, bool with_beta) {
    SCOPED_TRACE(fmt::format("{} x {}{}", rows, channels, with_beta ? " with beta" : ""));
    const NormReference reference{static_cast<std::size_t>(rows),
                                  static_cast<std::size_t>(channels)};
    auto xv = normals(1, rows * channels, 2);
    for (auto& v : xv) v += 3;
    xv = rounded_to(dtype(), xv);
    const auto gv = rounded_to(dtype(), normals(2, channels));
    const auto bv = rounded_to(dtype(), normals(3, with_beta ? channels : 0));
    const auto dyv = rounded_to(dtype(), normals(4, rows * channels));
    const auto before_x = rounded_to(dtype(), normals(5, rows * channels));
    const auto before_gamma = rounded_to(DType::f32, normals(6, channels));
    const auto before_beta = rounded_to(DType::f32, normals(7, with_beta ? channels : 0));

    const auto x = tensor(dtype(), xv), gamma = tensor(dtype(), gv), beta = tensor(dtype(), bv);
    const auto dy = tensor(dtype(), dyv);
    auto y = tensor(dtype(), rows * channels), dx = tensor(dtype(), before_x);
    auto mean = tensor(DType::f32, rows), rstd = tensor(DType::f32, rows);
    auto dgamma = tensor(DType::f32, before_gamma), dbeta = tensor(DType::f32, before_beta);
    ops::layer_norm_forward(y.view(), mean.view(), rstd.view(), x.view(), gamma.view(), beta.view(),
                            stream());
    expect_near(y.values(), reference.forward(xv, gv, bv), tolerance().layer_norm, "y");

    const auto backward = [&](bool accumulate) {
      ops::layer_norm_backward(dx.view(), dgamma.view(), dbeta.view(), dy.view(), x.view(),
                               gamma.view(), mean.view(), rstd.view(), accumulate, stream());
    };
    const auto expected = reference.backward(xv, gv, dyv);
    backward(true);
    expect_near(dx.values(), plus(expected.dx, before_x), tolerance().layer_norm, "dx added",
                expected.largest_term);
    expect_near(dgamma.values(), plus(expected.dgamma, before_gamma), tolerance().layer_norm,
                "dgamma");
    if (with_beta) {
      expect_near(dbeta.values(), plus(expected.dbeta, before_beta), tolerance().layer_norm,
                  "dbeta");
    }
    backward(false);
    expect_near(dx.values(), expected.dx, tolerance().layer_norm, "dx", expected.largest_term);
  }
};

TEST_P(LayerNormTest, NormalizesByHand) {
  // Mean 2, variance 1: (x - 2) / sqrt(1 + 1e-5) is +-1 less 5e-6.
  const auto x = tensor(dtype(), Values{1, 3}), gamma = tensor(dtype(), Values{1, 2});
  const auto beta = tensor(dtype(), Values{0, 10});
  auto y = tensor(dtype(), 2), mean = tensor(DType::f32, 1), rstd = tensor(DType::f32, 1);
  ops::layer_norm_forward(y.view(), mean.view(), rstd.view(), x.view(), gamma.view(), beta.view(),
                          stream());
  EXPECT_EQ(mean.values(), Values{2});
  expect_near(rstd.values(), {0.999995}, 1e-6, "rstd");
  expect_near(y.values(), {-0.999995, 11.99999}, tolerance().layer_norm, "y");
}

TEST_P(LayerNormTest, AgreesWithReferenceAtAwkwardSizes) {
  const std::vector<std::array<std::int64_t, 2>> sizes{{1, 2},    {3, 1},     {7, 5},  {65, 31},
                                                       {129, 33}, {130, 257}, {5, 768}};
  for (const auto& [rows, channels] : sizes)
    for (const bool with_beta : {false, true}) check(rows, channels, with_beta);
}

TEST_P(LayerNormTest, KeepsItsPrecisionFarFromZero) {
  // A mean 1000 times the deviation: one pass with the mean of squares would lose it.
  Values xv = normals(1, 2 * 384);
  for (auto& v : xv) v = 1000 + v;
  xv = rounded_to(dtype(), xv);
  const auto x = tensor(dtype(), xv), gamma = tensor(dtype(), Values(384, 1.0));
  auto y = tensor(dtype(), 2 * 384), mean = tensor(DType::f32, 2), rstd = tensor(DType::f32, 2);
  ops::layer_norm_forward(y.view(), mean.view(), rstd.view(), x.view(), gamma.view(), {}, stream());
  expect_near(y.values(), NormReference{2, 384}.forward(xv, Values(384, 1.0), {}),
              std::max(1e-4, tolerance().layer_norm), "y");
}

TEST_P(LayerNormTest, WorksInPlaceBackwards) {
  const auto xv = rounded_to(dtype(), normals(1, 66 * 34)),
             dyv = rounded_to(dtype(), normals(2, 66 * 34)),
             gv = rounded_to(dtype(), normals(3, 34));
  const auto x = tensor(dtype(), xv), gamma = tensor(dtype(), gv);
  auto y = tensor(dtype(), 66 * 34), dy = tensor(dtype(), dyv);
  auto mean = tensor(DType::f32, 66), rstd = tensor(DType::f32, 66),
       dgamma = tensor(DType::f32, 34);
  ops::layer_norm_forward(y.view(), mean.view(), rstd.view(), x.view(), gamma.view(), {}, stream());
  ops::layer_norm_backward(dy.view(), dgamma.view(), {}, dy.view(), x.view(), gamma.view(),
                           mean.view(), rstd.view(), false, stream());
  const auto expected = NormReference{66, 34}.backward(xv, gv, dyv);
  expect_near(dy.values(), expected.dx, tolerance().layer_norm, "dx");
  expect_near(dgamma.values(), expected.dgamma, tolerance().layer_norm, "dgamma");
}

TEST_P(LayerNormTest, DoesNotDependOnThreads) {
  const std::int64_t rows = 517, channels = 131;
  const auto x = tensor(dtype(), normals(1, rows * channels)),
             gamma = tensor(dtype(), normals(2, channels));
  const auto dy = tensor(dtype(), normals(3, rows * channels));
  expect_same_on_threads([&] {
    auto y = tensor(dtype(), rows * channels), dx = tensor(dtype(), rows * channels);
    auto mean = tensor(DType::f32, rows), rstd = tensor(DType::f32, rows);
    auto dgamma = tensor(DType::f32, channels), dbeta = tensor(DType::f32, channels);
    ops::layer_norm_forward(y.view(), mean.view(), rstd.view(), x.view(), gamma.view(),
                            gamma.view(), stream());
    ops::layer_norm_backward(dx.view(), dgamma.view(), dbeta.view(), dy.view(), x.view(),
                             gamma.view(), mean.view(), rstd.view(), false, stream());
    return joined({&y, &mean, &rstd, &dx, &dgamma, &dbeta});
  });
}

TEST_P(LayerNormTest, RejectsWrongViews) {
  const auto x = tensor(dtype(), 12), gamma = tensor(dtype(), 4), rows = tensor(DType::f32, 3);
  const auto five = tensor(dtype(), 5), four = tensor(DType::f32, 4);
  const auto forward = [&](const Tensor& g, const Tensor& b, const Tensor& mean) {
    ops::layer_norm_forward(x.view(), mean.view(), rows.view(), x.view(), g.view(), b.view(),
                            stream());
  };
  EXPECT_THROW(forward(five, gamma, rows), ContractError);
  EXPECT_THROW(forward(gamma, five, rows), ContractError);
  EXPECT_THROW(forward(gamma, gamma, four), ContractError);
}

TRIREME_ON_BACKENDS(LayerNormTest);

TEST(LayerNormReference, BackwardIsTheGradientOfForward) {
  const NormReference reference{3, 5};
  const auto x = normals(1, 15), gamma = normals(2, 5), beta = normals(3, 5), dy = normals(4, 15);
  const auto weighted = [&](const Values& y) {
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
    return sum;
  };
  const auto g = reference.backward(x, gamma, dy);
  expect_gradient([&](const Values& at) { return weighted(reference.forward(at, gamma, beta)); }, x,
                  g.dx, "dx");
  expect_gradient([&](const Values& at) { return weighted(reference.forward(x, at, beta)); }, gamma,
                  g.dgamma, "dgamma");
  expect_gradient([&](const Values& at) { return weighted(reference.forward(x, gamma, at)); }, beta,
                  g.dbeta, "dbeta");
}

}  // namespace
}  // namespace trireme::test
