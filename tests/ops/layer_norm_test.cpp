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

/// x + branch · mask.
Values residual_sum(Values x, const Values& branch, const Values& mask) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += branch[i] * mask[i];
  return x;
}

ops::NormKind kind_of(bool centered) {
  return centered ? ops::NormKind::layer : ops::NormKind::rms;
}

class LayerNormTest : public OpsTest {
 protected:
  /// A norm without a branch.
  static ops::LayerNormForward norm(const Tensor& y,
                                    const Tensor& mean,
                                    const Tensor& rstd,
                                    const Tensor& x,
                                    const Tensor& gamma,
                                    std::int64_t channels,
                                    ConstView beta = {}) {
    return {.y = y.view(),
            .mean = mean.view(),
            .rstd = rstd.view(),
            .x = x.view(),
            .gamma = gamma.view(),
            .beta = beta,
            .channels = channels,
            .epsilon = 1e-5F};
  }

  static ops::LayerNormForward with_branch(ops::LayerNormForward norm,
                                           const Tensor& branch,
                                           const Tensor& sum,
                                           std::int64_t rows_per_sample,
                                           const ops::Dropout& dropout) {
    norm.branch = branch.view();
    norm.sum = sum.view();
    norm.rows_per_sample = rows_per_sample;
    norm.dropout = dropout;
    return norm;
  }

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
    const ops::NormKind kind = kind_of(centered);
    const View means = centered ? mean.view() : View(nullptr, 0, DType::f32);
    ops::run(ops::LayerNormForward{.kind = kind,
                                   .y = y.view(),
                                   .mean = means,
                                   .rstd = rstd.view(),
                                   .x = x.view(),
                                   .gamma = gamma.view(),
                                   .beta = beta.view(),
                                   .channels = channels,
                                   .epsilon = epsilon},
             stream());
    expect_near(y.values(), reference.forward(xv, gv, bv), tolerance().layer_norm, "y");

    const auto backward = [&](bool accumulate, View bias) {
      ops::run(ops::LayerNormBackward{.kind = kind,
                                      .dx = dx.view(),
                                      .dgamma = dgamma.view(),
                                      .dbeta = dbeta.view(),
                                      .dbias = bias,
                                      .dy = dy.view(),
                                      .x = x.view(),
                                      .gamma = gamma.view(),
                                      .mean = means,
                                      .rstd = rstd.view(),
                                      .channels = channels,
                                      .accumulate = accumulate},
               stream());
    };
    const auto expected = reference.backward(xv, gv, dyv);
    backward(true, dbias.view());
    ops::run(ops::BiasBackward{.db = row_sums.view(), .dy = dx.view()}, stream());
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

  /// `samples` samples of `time` rows, in place and out of place.
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
      ops::run(with_branch(norm(y, mean, rstd, x, gamma, channels, beta.view()), branch, to, time,
                           dropout),
               stream());
      return joined({&to, &y, &mean, &rstd});
    };
    const auto got = add_and_normalize(sum);
    const Values mask = dropout_factors(dropout, samples, time * channels);
    expect_near(sum.values(), residual_sum(xv, bv, mask), tolerance().elementwise, "sum");
    // The norm uses the sum after it was rounded for storage.
    ops::run(norm(y, mean, rstd, sum, gamma, channels, beta.view()), stream());
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
  ops::run(norm(y, mean, rstd, x, gamma, 2, beta.view()), stream());
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

// A GPU block loops over its rows several times, the last time with one row. Some rows are too long
// for one pass over both gradients.
TEST_P(LayerNormTest, AgreesWithReferenceWithManyAndWithLongRows) {
  check(601, 257, true);
  check(3, 4104, true);
}

TEST_P(LayerNormTest, NormalizesByTheRootOfTheMeanSquare) {
  for (const auto& [rows, channels] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                                       {2, 3},
                                       {5, 33},
                                       {66, 64},
                                       {9, 768},
                                       {601, 257},
                                       {3, 4104}})
    for (const float epsilon : {1e-5F, 0.5F}) check(rows, channels, false, false, epsilon);
}

/// Gains of one have separate references. Without gains the loops differ, and a compiler may add in
/// another order or fuse a multiplication and an addition.
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
        const ops::NormKind kind = kind_of(centered);
        const View none(nullptr, 0, dtype()), no_sums(nullptr, 0, DType::f32);
        ops::run(ops::LayerNormForward{.kind = kind,
                                       .y = y.view(),
                                       .mean = mean.view(),
                                       .rstd = rstd.view(),
                                       .x = x.view(),
                                       .gamma = gains ? ones.view() : none,
                                       .beta = beta.view(),
                                       .channels = channels,
                                       .epsilon = 1e-5F},
                 stream());
        ops::run(ops::LayerNormBackward{.kind = kind,
                                        .dx = dx.view(),
                                        .dgamma = gains ? dgamma.view() : no_sums,
                                        .dbeta = dbeta.view(),
                                        .dy = dy.view(),
                                        .x = x.view(),
                                        .gamma = gains ? ones.view() : none,
                                        .mean = mean.view(),
                                        .rstd = rstd.view(),
                                        .channels = channels,
                                        .accumulate = true},
                 stream());
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
  ops::run(ops::LayerNormForward{.kind = ops::NormKind::rms,
                                 .y = y.view(),
                                 .rstd = rstd.view(),
                                 .x = x.view(),
                                 .gamma = gamma.view(),
                                 .channels = 2,
                                 .epsilon = 0},
           stream());
  const double root = std::sqrt(12.5);
  expect_near(rstd.values(), {1 / root}, 1e-6, "rstd");
  expect_near(y.values(), {3 / root, 8 / root}, tolerance().layer_norm, "y");
}

TEST_P(LayerNormTest, KeepsItsPrecisionFarFromZero) {
  // The mean is 1000 times the deviation: a single pass with the mean of squares would lose it.
  Values xv = normals(1, 2 * 384);
  for (auto& v : xv) v = 1000 + v;
  xv = rounded_to(dtype(), xv);
  const auto x = tensor(dtype(), xv), gamma = tensor(dtype(), Values(384, 1.0));
  auto y = tensor(dtype(), 2 * 384), mean = tensor(DType::f32, 2), rstd = tensor(DType::f32, 2);
  ops::run(norm(y, mean, rstd, x, gamma, 384), stream());
  expect_near(y.values(), NormReference{2, 384}.forward(xv, Values(384, 1.0), {}),
              std::max(1e-4, tolerance().layer_norm), "y");
}

TEST_P(LayerNormTest, RmsNormalizationOfASumHasItsBits) {
  const auto xv = normals(1, 2 * 5 * 48), bv = normals(2, 2 * 5 * 48);
  const auto x = tensor(dtype(), xv), branch = tensor(dtype(), bv);
  const auto gamma = tensor(dtype(), normals(3, 48));
  auto sum = tensor(dtype(), 480), y = tensor(dtype(), 480), again = tensor(dtype(), 480);
  auto rstd = tensor(DType::f32, 10);
  ops::run(ops::LayerNormForward{.kind = ops::NormKind::rms,
                                 .y = y.view(),
                                 .rstd = rstd.view(),
                                 .x = x.view(),
                                 .gamma = gamma.view(),
                                 .channels = 48,
                                 .epsilon = 1e-6F,
                                 .branch = branch.view(),
                                 .sum = sum.view(),
                                 .rows_per_sample = 5,
                                 .dropout = dropped(0.25F)},
           stream());
  ops::run(ops::LayerNormForward{.kind = ops::NormKind::rms,
                                 .y = again.view(),
                                 .rstd = rstd.view(),
                                 .x = sum.view(),
                                 .gamma = gamma.view(),
                                 .channels = 48,
                                 .epsilon = 1e-6F},
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
  ops::run(norm(y, mean, rstd, x, gamma, 34), stream());
  ops::run(ops::LayerNormBackward{.dx = dy.view(),
                                  .dgamma = dgamma.view(),
                                  .dy = dy.view(),
                                  .x = x.view(),
                                  .gamma = gamma.view(),
                                  .mean = mean.view(),
                                  .rstd = rstd.view(),
                                  .channels = 34},
           stream());
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
  // x = 0 and branch = 1 give the dropout factors themselves.
  for (const std::int64_t channels : {1, 3, 64, 257}) {
    const std::int64_t samples = 3, time = 5, rows = samples * time, n = rows * channels;
    const auto dropout = dropped(0.25F);
    const auto x = tensor(dtype(), Values(static_cast<std::size_t>(n), 0.0)),
               ones = tensor(dtype(), Values(static_cast<std::size_t>(n), 1.0)),
               gamma = tensor(dtype(), Values(static_cast<std::size_t>(channels), 1.0));
    auto sum = tensor(dtype(), n), y = tensor(dtype(), n);
    auto mean = tensor(DType::f32, rows), rstd = tensor(DType::f32, rows);
    ops::run(with_branch(norm(y, mean, rstd, x, gamma, channels), ones, sum, time, dropout),
             stream());
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
    ops::run(ops::LayerNormForward{.y = at(y),
                                   .mean = mean.view(),
                                   .rstd = rstd.view(),
                                   .x = at(x),
                                   .gamma = gamma.view(),
                                   .channels = channels,
                                   .epsilon = 1e-5F,
                                   .branch = at(branch),
                                   .sum = at(sum),
                                   .rows_per_sample = time,
                                   .dropout = mine},
             stream());
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
             later = rounded_to(dtype(), normals(4, n));  // the stream's own gradient
  const auto sum = tensor(dtype(), sv), dy = tensor(dtype(), dyv), gamma = tensor(dtype(), gv);
  auto y = tensor(dtype(), n), dx = tensor(dtype(), later), dbranch = tensor(dtype(), n);
  auto mean = tensor(DType::f32, rows), rstd = tensor(DType::f32, rows),
       dgamma = tensor(DType::f32, channels);
  ops::run(norm(y, mean, rstd, sum, gamma, channels), stream());
  ops::run(ops::LayerNormBackward{.dx = dx.view(),
                                  .dgamma = dgamma.view(),
                                  .dy = dy.view(),
                                  .x = sum.view(),
                                  .gamma = gamma.view(),
                                  .mean = mean.view(),
                                  .rstd = rstd.view(),
                                  .channels = channels,
                                  .accumulate = true},
           stream());
  ops::run(ops::DropoutBackward{.dbranch = dbranch.view(),
                                .dy = dx.view(),
                                .elements_per_sample = time * channels,
                                .dropout = dropout},
           stream());
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
    ops::run(with_branch(norm(normed, mean, rstd, x, gamma, channels, gamma.view()), dy, sum, 47,
                         dropped(0.1F)),
             stream());
    ops::run(norm(y, mean, rstd, x, gamma, channels, gamma.view()), stream());
    ops::run(ops::LayerNormBackward{.dx = dx.view(),
                                    .dgamma = dgamma.view(),
                                    .dbeta = dbeta.view(),
                                    .dy = dy.view(),
                                    .x = x.view(),
                                    .gamma = gamma.view(),
                                    .mean = mean.view(),
                                    .rstd = rstd.view(),
                                    .channels = channels},
             stream());
    return joined({&sum, &normed, &y, &mean, &rstd, &dx, &dgamma, &dbeta});
  });
}

TEST_P(LayerNormTest, RejectsWrongViews) {
  const auto x = tensor(dtype(), 12), gamma = tensor(dtype(), 4), rows = tensor(DType::f32, 3);
  const auto five = tensor(dtype(), 5), four = tensor(DType::f32, 4);
  const auto forward = [&](const Tensor& g, const Tensor& b, const Tensor& mean,
                           ops::NormKind kind = ops::NormKind::layer) {
    ops::run(ops::LayerNormForward{.kind = kind,
                                   .y = x.view(),
                                   .mean = mean.view(),
                                   .rstd = rows.view(),
                                   .x = x.view(),
                                   .gamma = g.view(),
                                   .beta = b.view(),
                                   .channels = 4,
                                   .epsilon = 1e-5F},
             stream());
  };
  EXPECT_THROW(forward(five, gamma, rows), ContractError);
  EXPECT_THROW(forward(gamma, five, rows), ContractError);
  EXPECT_THROW(forward(gamma, gamma, four), ContractError);
  EXPECT_THROW(forward(gamma, gamma, tensor(DType::f32, 0)), ContractError);
  EXPECT_THROW(forward(gamma, gamma, rows, ops::NormKind::rms), ContractError);
  const auto add_and_normalize = [&](const Tensor& sum, const Tensor& branch, std::int64_t time,
                                     float rate) {
    auto mean = tensor(DType::f32, 3);
    ops::run(with_branch(norm(x, mean, rows, x, gamma, 4), branch, sum, time, dropped(rate)),
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
