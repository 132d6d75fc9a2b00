// SPDX-License-Identifier: Apache-2.0
#include "ops/layer_norm.hpp"

#include <algorithm>
#include <array>

#include "ops/elementwise.hpp"
#include "ops/tensors.hpp"

namespace trireme::test {
namespace {

struct Gradients {
  Values dx, dgamma, dbeta;
  double largest_term = 0;  ///< of dx, which is a difference
};

struct NormReference {
  std::size_t rows, channels;
  bool centered = true;
  double epsilon = 1e-5;

  struct Moments {
    double mean, rstd;
  };
  [[nodiscard]] Moments moments(const Values& x, std::size_t r) const {
    double mean = 0, variance = 0;
    for (std::size_t c = 0; centered && c < channels; ++c)
      mean += x[r * channels + c] / static_cast<double>(channels);
    for (std::size_t c = 0; c < channels; ++c)
      variance += std::pow(x[r * channels + c] - mean, 2) / static_cast<double>(channels);
    return {mean, 1 / std::sqrt(variance + epsilon)};
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
        sum += centered ? dy[i] * gamma[c] / n : 0;
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

/// x + the branch where the mask lets it through.
Values residual_sum(Values x, const Values& branch, const Values& mask) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += branch[i] * mask[i];
  return x;
}

class LayerNormTest : public OpsTest {
 protected:
  void check(std::int64_t rows,
             std::int64_t channels,
             bool with_beta,
             bool centered = true,
             float epsilon = 1e-5F) {
    SCOPED_TRACE(fmt::format("{} x {}{}{}", rows, channels, with_beta ? " with beta" : "",
                             centered ? "" : ", not centered"));
    const NormReference reference{static_cast<std::size_t>(rows),
                                  static_cast<std::size_t>(channels), centered,
                                  static_cast<double>(epsilon)};
    auto xv = normals(1, rows * channels, 2);
    for (auto& v : xv) v += 3;
    xv = rounded_to(dtype(), xv);
    const auto gv = rounded_to(dtype(), normals(2, channels));
    const auto bv = rounded_to(dtype(), normals(3, with_beta ? channels : 0));
    const auto dyv = rounded_to(dtype(), normals(4, rows * channels));
    const auto before_x = rounded_to(dtype(), normals(5, rows * channels));
    const auto before_gamma = rounded_to(DType::f32, normals(6, channels));
    const auto before_beta = rounded_to(DType::f32, normals(7, with_beta ? channels : 0));
    const auto before_bias = rounded_to(DType::f32, normals(8, channels));

    const auto x = tensor(dtype(), xv), gamma = tensor(dtype(), gv), beta = tensor(dtype(), bv);
    const auto dy = tensor(dtype(), dyv);
    auto y = tensor(dtype(), rows * channels), dx = tensor(dtype(), before_x);
    auto mean = tensor(DType::f32, rows), rstd = tensor(DType::f32, rows);
    auto dgamma = tensor(DType::f32, before_gamma), dbeta = tensor(DType::f32, before_beta);
    auto dbias = tensor(DType::f32, before_bias), row_sums = tensor(DType::f32, before_bias);
    const View means = centered ? mean.view() : View(nullptr, 0, DType::f32);
    ops::layer_norm_forward(y.view(), means, rstd.view(), x.view(), gamma.view(), beta.view(),
                            epsilon, stream());
    expect_near(y.values(), reference.forward(xv, gv, bv), tolerance().layer_norm, "y");

    const auto backward = [&](bool accumulate, View bias) {
      ops::layer_norm_backward(dx.view(), dgamma.view(), dbeta.view(), bias, dy.view(), x.view(),
                               gamma.view(), means, rstd.view(), accumulate, stream());
    };
    const auto expected = reference.backward(xv, gv, dyv);
    backward(true, dbias.view());
    ops::bias_backward(row_sums.view(), dx.view(), stream());
    expect_near(dbias.values(), row_sums.values(), 2e-6, "dbias");
    expect_near(dx.values(), plus(expected.dx, before_x), tolerance().layer_norm, "dx added",
                expected.largest_term);
    expect_near(dgamma.values(), plus(expected.dgamma, before_gamma), tolerance().layer_norm,
                "dgamma");
    if (with_beta) {
      expect_near(dbeta.values(), plus(expected.dbeta, before_beta), tolerance().layer_norm,
                  "dbeta");
    }
    backward(false, {});
    expect_near(dx.values(), expected.dx, tolerance().layer_norm, "dx", expected.largest_term);
  }

  /// `samples` samples of `time` rows, in and out of place.
  void check_sum(std::int64_t samples, std::int64_t time, std::int64_t channels, float rate) {
    SCOPED_TRACE(fmt::format("{} x {} x {}, dropout {}", samples, time, channels,
                             static_cast<double>(rate)));
    const std::int64_t rows = samples * time, n = rows * channels;
    const auto dropout = dropped(rate);
    const auto xv = rounded_to(dtype(), normals(1, n, 2)), bv = rounded_to(dtype(), normals(2, n)),
               gv = rounded_to(dtype(), normals(3, channels));
    const auto branch = tensor(dtype(), bv), gamma = tensor(dtype(), gv);
    const auto beta = tensor(dtype(), normals(4, channels));
    auto x = tensor(dtype(), xv), sum = tensor(dtype(), n), y = tensor(dtype(), n);
    auto mean = tensor(DType::f32, rows), rstd = tensor(DType::f32, rows);
    const auto add_and_normalize = [&](const Tensor& to) {
      ops::residual_layer_norm_forward(to.view(), y.view(), mean.view(), rstd.view(), x.view(),
                                       branch.view(), gamma.view(), beta.view(), time, dropout,
                                       1e-5F, stream());
      return joined({&to, &y, &mean, &rstd});
    };
    const auto got = add_and_normalize(sum);
    const Values mask = dropout_factors(dropout, samples, time * channels);
    expect_near(sum.values(), residual_sum(xv, bv, mask), tolerance().elementwise, "sum");
    // What is normalized is the sum as it is stored.
    ops::layer_norm_forward(y.view(), mean.view(), rstd.view(), sum.view(), gamma.view(),
                            beta.view(), 1e-5F, stream());
    EXPECT_TRUE(joined({&sum, &y, &mean, &rstd}) == got);
    const NormReference reference{static_cast<std::size_t>(rows),
                                  static_cast<std::size_t>(channels)};
    expect_near(y.values(), reference.forward(sum.values(), gv, beta.values()),
                tolerance().layer_norm, "y");
    EXPECT_TRUE(add_and_normalize(x) == got) << "in place";
  }
};

TEST_P(LayerNormTest, NormalizesByHand) {
  // Mean 2, variance 1: (x - 2) / sqrt(1 + 1e-5) is +-1 less 5e-6.
  const auto x = tensor(dtype(), Values{1, 3}), gamma = tensor(dtype(), Values{1, 2});
  const auto beta = tensor(dtype(), Values{0, 10});
  auto y = tensor(dtype(), 2), mean = tensor(DType::f32, 1), rstd = tensor(DType::f32, 1);
  ops::layer_norm_forward(y.view(), mean.view(), rstd.view(), x.view(), gamma.view(), beta.view(),
                          1e-5F, stream());
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

// A GPU's block takes several turns through its rows, the last with one; and rows that are too long
// for one pass over both gradients.
TEST_P(LayerNormTest, AgreesWithReferenceWithManyAndWithLongRows) {
  check(601, 257, true);
  check(3, 4104, true);
}

TEST_P(LayerNormTest, WithoutMeansItIsRmsNormalization) {
  for (const auto& [rows, channels] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                                       {2, 3},
                                       {5, 33},
                                       {66, 64},
                                       {9, 768},
                                       {601, 257},
                                       {3, 4104}})
    for (const float epsilon : {1e-5F, 0.5F}) check(rows, channels, false, false, epsilon);
}

/// Gains of one have references of their own. Without gains the loops are others, in which a
/// compiler may add up in another order, or multiply and add in one operation.
TEST_P(LayerNormTest, WithoutGainsItComputesAsWithGainsOfOne) {
  for (const auto& size :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {66, 33}, {70, 64}, {3, 4104}})
    for (const bool centered : {false, true}) {
      const std::int64_t rows = size.first, channels = size.second;
      SCOPED_TRACE(fmt::format("{} x {}, centered {}", rows, channels, centered));
      const std::int64_t n = rows * channels;
      const auto x = tensor(dtype(), normals(1, n)), dy = tensor(dtype(), normals(2, n));
      const auto beta = tensor(dtype(), normals(3, centered ? channels : 0));
      const auto ones = tensor(dtype(), Values(static_cast<std::size_t>(channels), 1.0));
      const auto run = [&](bool gains) {
        const auto y = tensor(dtype(), n), dx = tensor(dtype(), normals(4, n));
        const auto mean = tensor(DType::f32, centered ? rows : 0), rstd = tensor(DType::f32, rows);
        const auto dgamma = tensor(DType::f32, Values(static_cast<std::size_t>(channels)));
        const auto dbeta = tensor(DType::f32, normals(5, centered ? channels : 0));
        const View none(nullptr, 0, dtype()), no_sums(nullptr, 0, DType::f32);
        ops::layer_norm_forward(y.view(), mean.view(), rstd.view(), x.view(),
                                gains ? ones.view() : none, beta.view(), 1e-5F, stream());
        ops::layer_norm_backward(dx.view(), gains ? dgamma.view() : no_sums, dbeta.view(), {},
                                 dy.view(), x.view(), gains ? ones.view() : none, mean.view(),
                                 rstd.view(), true, stream());
        return std::array{y.values(), rstd.values(), dx.values(), dbeta.values()};
      };
      const auto without = run(false), with = run(true);
      EXPECT_EQ(without[1], with[1]) << "rstd";
      EXPECT_EQ(without[3], with[3]) << "dbeta";
      expect_near(without[0], with[0], tolerance().layer_norm, "y");
      expect_near(without[2], with[2], tolerance().layer_norm, "dx");
    }
}

TEST_P(LayerNormTest, RmsNormalizationByHand) {
  const auto x = tensor(dtype(), Values{3, 4}), gamma = tensor(dtype(), Values{1, 2});
  auto y = tensor(dtype(), 2), rstd = tensor(DType::f32, 1);
  ops::layer_norm_forward(y.view(), View(nullptr, 0, DType::f32), rstd.view(), x.view(),
                          gamma.view(), {}, 0, stream());
  const double root = std::sqrt(12.5);
  expect_near(rstd.values(), {1 / root}, 1e-6, "rstd");
  expect_near(y.values(), {3 / root, 8 / root}, tolerance().layer_norm, "y");
}

TEST_P(LayerNormTest, KeepsItsPrecisionFarFromZero) {
  // A mean 1000 times the deviation: one pass with the mean of squares would lose it.
  Values xv = normals(1, 2 * 384);
  for (auto& v : xv) v = 1000 + v;
  xv = rounded_to(dtype(), xv);
  const auto x = tensor(dtype(), xv), gamma = tensor(dtype(), Values(384, 1.0));
  auto y = tensor(dtype(), 2 * 384), mean = tensor(DType::f32, 2), rstd = tensor(DType::f32, 2);
  ops::layer_norm_forward(y.view(), mean.view(), rstd.view(), x.view(), gamma.view(), {}, 1e-5F,
                          stream());
  expect_near(y.values(), NormReference{2, 384}.forward(xv, Values(384, 1.0), {}),
              std::max(1e-4, tolerance().layer_norm), "y");
}

TEST_P(LayerNormTest, RmsNormalizationOfASumHasItsBits) {
  const auto xv = normals(1, 2 * 5 * 48), bv = normals(2, 2 * 5 * 48);
  const auto x = tensor(dtype(), xv), branch = tensor(dtype(), bv);
  const auto gamma = tensor(dtype(), normals(3, 48));
  const View none(nullptr, 0, DType::f32);
  auto sum = tensor(dtype(), 480), y = tensor(dtype(), 480), again = tensor(dtype(), 480);
  auto rstd = tensor(DType::f32, 10);
  ops::residual_layer_norm_forward(sum.view(), y.view(), none, rstd.view(), x.view(), branch.view(),
                                   gamma.view(), {}, 5, dropped(0.25F), 1e-6F, stream());
  ops::layer_norm_forward(again.view(), none, rstd.view(), sum.view(), gamma.view(), {}, 1e-6F,
                          stream());
  EXPECT_EQ(again.values(), y.values());
}

TEST_P(LayerNormTest, WorksInPlaceBackwards) {
  const auto xv = rounded_to(dtype(), normals(1, 66 * 34)),
             dyv = rounded_to(dtype(), normals(2, 66 * 34)),
             gv = rounded_to(dtype(), normals(3, 34));
  const auto x = tensor(dtype(), xv), gamma = tensor(dtype(), gv);
  auto y = tensor(dtype(), 66 * 34), dy = tensor(dtype(), dyv);
  auto mean = tensor(DType::f32, 66), rstd = tensor(DType::f32, 66),
       dgamma = tensor(DType::f32, 34);
  ops::layer_norm_forward(y.view(), mean.view(), rstd.view(), x.view(), gamma.view(), {}, 1e-5F,
                          stream());
  ops::layer_norm_backward(dy.view(), dgamma.view(), {}, {}, dy.view(), x.view(), gamma.view(),
                           mean.view(), rstd.view(), false, stream());
  const auto expected = NormReference{66, 34}.backward(xv, gv, dyv);
  expect_near(dy.values(), expected.dx, tolerance().layer_norm, "dx");
  expect_near(dgamma.values(), expected.dgamma, tolerance().layer_norm, "dgamma");
}

TEST_P(LayerNormTest, AddsABranchFirst) {
  const std::vector<std::array<std::int64_t, 3>> sizes{{1, 1, 1},   {2, 3, 5},   {3, 7, 33},
                                                       {2, 65, 64}, {2, 9, 768}, {2, 3, 2309}};
  for (const auto& [samples, time, channels] : sizes)
    for (const float rate : {0.0F, 0.25F}) check_sum(samples, time, channels, rate);
}

TEST_P(LayerNormTest, DropsByTheFactors) {
  // x = 0 and branch = 1 leave the factors themselves.
  for (const std::int64_t channels : {1, 3, 64, 257}) {
    const std::int64_t samples = 3, time = 5, rows = samples * time, n = rows * channels;
    const auto dropout = dropped(0.25F);
    const auto x = tensor(dtype(), Values(static_cast<std::size_t>(n), 0.0)),
               ones = tensor(dtype(), Values(static_cast<std::size_t>(n), 1.0)),
               gamma = tensor(dtype(), Values(static_cast<std::size_t>(channels), 1.0));
    auto sum = tensor(dtype(), n), y = tensor(dtype(), n);
    auto mean = tensor(DType::f32, rows), rstd = tensor(DType::f32, rows);
    ops::residual_layer_norm_forward(sum.view(), y.view(), mean.view(), rstd.view(), x.view(),
                                     ones.view(), gamma.view(), {}, time, dropout, 1e-5F, stream());
    EXPECT_EQ(sum.values(), rounded_to(dtype(), dropout_factors(dropout, samples, time * channels)))
        << channels;
  }
}

TEST_P(LayerNormTest, SumsDoNotDependOnTheMicroBatch) {
  const std::int64_t time = 3, channels = 101, per_sample = time * channels;
  const auto dropout = dropped(0.5F);
  const auto x = tensor(dtype(), normals(1, 2 * per_sample)),
             branch = tensor(dtype(), normals(2, 2 * per_sample)),
             gamma = tensor(dtype(), normals(3, channels));
  const auto run = [&](const Tensor& sum, const Tensor& y, std::int64_t first, std::int64_t count) {
    auto mean = tensor(DType::f32, count * time), rstd = tensor(DType::f32, count * time);
    const auto mine = placed(dropout, static_cast<std::uint64_t>(first));
    const auto at = [&](const Tensor& t) {
      return t.view().slice(first * per_sample, count * per_sample);
    };
    ops::residual_layer_norm_forward(at(sum), at(y), mean.view(), rstd.view(), at(x), at(branch),
                                     gamma.view(), {}, time, mine, 1e-5F, stream());
  };
  auto sum = tensor(dtype(), 2 * per_sample), y = tensor(dtype(), 2 * per_sample);
  run(sum, y, 0, 2);
  const auto both = joined({&sum, &y});
  run(sum, y, 0, 1);
  run(sum, y, 1, 1);
  EXPECT_TRUE(joined({&sum, &y}) == both);
}

TEST_P(LayerNormTest, GradientsOfASumReachStreamAndBranch) {
  const std::int64_t samples = 2, time = 7, channels = 34, rows = samples * time,
                     n = rows * channels;
  const auto dropout = dropped(0.25F);
  const auto sv = rounded_to(dtype(), normals(1, n)), dyv = rounded_to(dtype(), normals(2, n)),
             gv = rounded_to(dtype(), normals(3, channels)),
             later = rounded_to(dtype(), normals(4, n));  // what the stream itself brings
  const auto sum = tensor(dtype(), sv), dy = tensor(dtype(), dyv), gamma = tensor(dtype(), gv);
  auto y = tensor(dtype(), n), dx = tensor(dtype(), later), dbranch = tensor(dtype(), n);
  auto mean = tensor(DType::f32, rows), rstd = tensor(DType::f32, rows),
       dgamma = tensor(DType::f32, channels);
  ops::layer_norm_forward(y.view(), mean.view(), rstd.view(), sum.view(), gamma.view(), {}, 1e-5F,
                          stream());
  ops::layer_norm_backward(dx.view(), dgamma.view(), {}, {}, dy.view(), sum.view(), gamma.view(),
                           mean.view(), rstd.view(), true, stream());
  ops::dropout_backward(dbranch.view(), dx.view(), time * channels, dropout, stream());
  const auto norm =
      NormReference{static_cast<std::size_t>(rows), static_cast<std::size_t>(channels)}.backward(
          sv, gv, dyv);
  const Values expected = plus(norm.dx, later);
  expect_near(dx.values(), expected, tolerance().layer_norm, "dx", norm.largest_term);
  expect_near(dbranch.values(),
              residual_sum(Values(expected.size()), expected,
                           dropout_factors(dropout, samples, time * channels)),
              tolerance().layer_norm + tolerance().elementwise, "dbranch", norm.largest_term);
}

TEST_P(LayerNormTest, DoesNotDependOnThreads) {
  const std::int64_t rows = 517, channels = 131;
  const auto x = tensor(dtype(), normals(1, rows * channels)),
             gamma = tensor(dtype(), normals(2, channels));
  const auto dy = tensor(dtype(), normals(3, rows * channels));
  expect_same_on_threads([&] {
    auto y = tensor(dtype(), rows * channels), dx = tensor(dtype(), rows * channels);
    auto sum = tensor(dtype(), rows * channels), normed = tensor(dtype(), rows * channels);
    auto mean = tensor(DType::f32, rows), rstd = tensor(DType::f32, rows);
    auto dgamma = tensor(DType::f32, channels), dbeta = tensor(DType::f32, channels);
    ops::residual_layer_norm_forward(sum.view(), normed.view(), mean.view(), rstd.view(), x.view(),
                                     dy.view(), gamma.view(), gamma.view(), 47, dropped(0.1F),
                                     1e-5F, stream());
    ops::layer_norm_forward(y.view(), mean.view(), rstd.view(), x.view(), gamma.view(),
                            gamma.view(), 1e-5F, stream());
    ops::layer_norm_backward(dx.view(), dgamma.view(), dbeta.view(), {}, dy.view(), x.view(),
                             gamma.view(), mean.view(), rstd.view(), false, stream());
    return joined({&sum, &normed, &y, &mean, &rstd, &dx, &dgamma, &dbeta});
  });
}

TEST_P(LayerNormTest, RejectsWrongViews) {
  const auto x = tensor(dtype(), 12), gamma = tensor(dtype(), 4), rows = tensor(DType::f32, 3);
  const auto five = tensor(dtype(), 5), four = tensor(DType::f32, 4);
  const auto forward = [&](const Tensor& g, const Tensor& b, const Tensor& mean) {
    ops::layer_norm_forward(x.view(), mean.view(), rows.view(), x.view(), g.view(), b.view(), 1e-5F,
                            stream());
  };
  EXPECT_THROW(forward(five, gamma, rows), ContractError);
  EXPECT_THROW(forward(gamma, five, rows), ContractError);
  EXPECT_THROW(forward(gamma, gamma, four), ContractError);
  const auto add_and_normalize = [&](const Tensor& sum, const Tensor& branch, std::int64_t time,
                                     float rate) {
    auto mean = tensor(DType::f32, 3);
    ops::residual_layer_norm_forward(sum.view(), x.view(), mean.view(), rows.view(), x.view(),
                                     branch.view(), gamma.view(), {}, time, dropped(rate), 1e-5F,
                                     stream());
  };
  EXPECT_NO_THROW(add_and_normalize(x, x, 3, 0.5F));
  EXPECT_THROW(add_and_normalize(five, x, 3, 0.5F), ContractError);
  EXPECT_THROW(add_and_normalize(x, five, 3, 0.5F), ContractError);
  EXPECT_THROW(add_and_normalize(x, x, 2, 0.5F), ContractError);
  EXPECT_THROW(add_and_normalize(x, x, 0, 0.5F), ContractError);
  EXPECT_THROW(add_and_normalize(x, x, 3, 1.0F), ContractError);
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

TEST(LayerNormReference, GradientOfASumIsThatOfStreamAndNorm) {
  const NormReference reference{3, 5};
  const auto x = normals(1, 15), branch = normals(2, 15), gamma = normals(3, 5),
             dy = normals(4, 15), later = normals(5, 15);
  const auto mask = dropout_factors(dropped(0.25F), 1, 15);
  const auto weighted = [&](const Values& sum) {
    const auto y = reference.forward(sum, gamma, {});
    double total = 0;
    for (std::size_t i = 0; i < y.size(); ++i) total += sum[i] * later[i] + y[i] * dy[i];
    return total;
  };
  const auto dx = plus(reference.backward(residual_sum(x, branch, mask), gamma, dy).dx, later);
  expect_gradient([&](const Values& at) { return weighted(residual_sum(at, branch, mask)); }, x, dx,
                  "dx");
  expect_gradient([&](const Values& at) { return weighted(residual_sum(x, at, mask)); }, branch,
                  residual_sum(Values(15), dx, mask), "dbranch");
}

}  // namespace
}  // namespace trireme::test
