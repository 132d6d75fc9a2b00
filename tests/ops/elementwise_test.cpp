// SPDX-License-Identifier: Apache-2.0
#include "ops/elementwise.hpp"

#include <algorithm>
#include <limits>

#include "ops/tensors.hpp"

namespace trireme::test {
namespace {

using ops::Dropout;

class ElementwiseTest : public OpsTest {
 protected:
  static const std::vector<std::int64_t>& sizes() {
    static const std::vector<std::int64_t> all{1, 2, 15, 17, 255, 257, 16384, 16385, 40009};
    return all;
  }
};

TEST_P(ElementwiseTest, DropsByTheFactors) {
  for (const std::int64_t per_sample : {1, 3, 64, 257, 20001}) {
    const std::int64_t samples = per_sample > 1000 ? 2 : 5, n = samples * per_sample;
    const auto dropout = dropped(0.25F);
    const auto ones = tensor(dtype(), Values(static_cast<std::size_t>(n), 1.0));
    auto dbranch = tensor(dtype(), n);
    run(ops::DropoutBackward{.dbranch = dbranch.view(),
                             .dy = ones.view(),
                             .elements_per_sample = per_sample,
                             .dropout = dropout},
        stream());
    const auto factors = rounded_to(dtype(), dropout_factors(dropout, samples, per_sample));
    EXPECT_EQ(dbranch.values(), factors) << per_sample;
    if (n > 10000) {
      const auto kept = static_cast<double>(
          std::count_if(factors.begin(), factors.end(), [](double f) { return f > 0; }));
      // Five standard deviations of a binomial.
      EXPECT_NEAR(kept / static_cast<double>(n), 0.75,
                  5 * std::sqrt(0.1875 / static_cast<double>(n)));
    }
  }
}

TEST_P(ElementwiseTest, CopiesGradientsWithoutDropout) {
  for (const auto n : sizes()) {
    const auto dyv = rounded_to(dtype(), normals(2, n));
    const auto dy = tensor(dtype(), dyv);
    auto dbranch = tensor(dtype(), n);
    run(ops::DropoutBackward{.dbranch = dbranch.view(), .dy = dy.view(), .elements_per_sample = n},
        stream());
    EXPECT_EQ(dbranch.values(), dyv);
  }
}

TEST_P(ElementwiseTest, DoesNotDependOnTheMicroBatch) {
  const std::int64_t per_sample = 303;
  const auto dropout = dropped(0.5F);
  const auto dy = tensor(dtype(), normals(1, 2 * per_sample));
  auto both = tensor(dtype(), 2 * per_sample), single = tensor(dtype(), 2 * per_sample);
  run(ops::DropoutBackward{.dbranch = both.view(),
                           .dy = dy.view(),
                           .elements_per_sample = per_sample,
                           .dropout = dropout},
      stream());
  for (std::int64_t b = 0; b < 2; ++b) {
    const auto mine = placed(dropout, static_cast<std::uint64_t>(b));
    const auto at = [&](const Tensor& t) { return t.view().slice(b * per_sample, per_sample); };
    run(ops::DropoutBackward{.dbranch = at(single),
                             .dy = at(dy),
                             .elements_per_sample = per_sample,
                             .dropout = mine},
        stream());
  }
  EXPECT_EQ(both.bytes(), single.bytes());
}

TEST_P(ElementwiseTest, SumsBiasGradients) {
  const std::vector<std::array<std::int64_t, 2>> shapes{{1, 1},   {3, 2},    {64, 32},
                                                        {65, 33}, {1000, 7}, {129, 300}};
  for (const auto& [rows, columns] : shapes) {
    const auto dyv = rounded_to(dtype(), normals(1, rows * columns));
    auto expected = rounded_to(DType::f32, normals(2, columns));
    auto db = tensor(DType::f32, expected);
    for (std::size_t i = 0; i < dyv.size(); ++i) expected[i % expected.size()] += dyv[i];
    const auto dy = tensor(dtype(), dyv);
    run(ops::BiasBackward{.db = db.view(), .dy = dy.view()}, stream());
    expect_near(db.values(), expected, 2e-6, "db");
  }
}

TEST_P(ElementwiseTest, AddsInFp32) {
  for (const auto n : sizes()) {
    auto expected = rounded_to(DType::f32, normals(1, n));
    const auto terms = rounded_to(DType::f32, normals(2, n));
    auto sum = tensor(DType::f32, expected);
    const auto term = tensor(DType::f32, terms);
    run(ops::Add{.sum = sum.view(), .term = term.view()}, stream());
    for (std::size_t i = 0; i < terms.size(); ++i)
      expected[i] = static_cast<float>(expected[i]) + static_cast<float>(terms[i]);
    EXPECT_EQ(sum.values(), expected);
    EXPECT_EQ(term.values(), terms);
    run(ops::Add{.sum = sum.view(), .term = term.view(), .factor = -1}, stream());
    for (std::size_t i = 0; i < terms.size(); ++i)
      expected[i] = static_cast<float>(expected[i]) - static_cast<float>(terms[i]);
    EXPECT_EQ(sum.values(), expected);
  }
}

TEST_P(ElementwiseTest, CastsBothWays) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (const auto n : sizes()) {
    auto values = rounded_to(DType::f32, normals(1, n));
    values[0] = 1.00390625;  // halfway between 1 and 1.0078125: to even, 1
    if (n > 2)
      values[1] = -infinity;
    const auto from = tensor(DType::f32, values);
    auto to = tensor(dtype(), n), back = tensor(DType::f32, n);
    run(ops::Cast{.to = to.view(), .from = from.view()}, stream());
    run(ops::Cast{.to = back.view(), .from = to.view()}, stream());
    EXPECT_EQ(to.values(), rounded_to(dtype(), values));
    EXPECT_EQ(back.values(), rounded_to(dtype(), values));
  }
  const auto nan = tensor(DType::f32, Values{std::nan(""), 1});
  auto to = tensor(dtype(), 2);
  run(ops::Cast{.to = to.view(), .from = nan.view()}, stream());
  EXPECT_TRUE(std::isnan(to.values()[0]));
}

TEST_P(ElementwiseTest, DoesNotDependOnThreads) {
  const std::int64_t rows = 9, columns = 12345, n = rows * columns;
  const auto x = tensor(dtype(), normals(1, n)), dy = tensor(dtype(), normals(2, n));
  expect_same_on_threads([&] {
    auto dbranch = tensor(dtype(), n), db = tensor(DType::f32, columns),
         copy = tensor(DType::f32, n);
    run(ops::DropoutBackward{.dbranch = dbranch.view(),
                             .dy = dy.view(),
                             .elements_per_sample = columns,
                             .dropout = dropped(0.1F)},
        stream());
    run(ops::BiasBackward{.db = db.view(), .dy = dy.view()}, stream());
    run(ops::Cast{.to = copy.view(), .from = x.view()}, stream());
    run(ops::Add{.sum = copy.view(), .term = copy.view()}, stream());
    return joined({&dbranch, &db, &copy});
  });
}

TEST_P(ElementwiseTest, RejectsWrongViews) {
  const auto three = tensor(dtype(), 3), four = tensor(dtype(), 4),
             integers = tensor(DType::i32, 4);
  EXPECT_THROW(
      run(ops::DropoutBackward{.dbranch = four.view(), .dy = four.view(), .elements_per_sample = 3},
          stream()),
      ContractError);
  EXPECT_THROW(run(ops::DropoutBackward{.dbranch = four.view(),
                                        .dy = four.view(),
                                        .elements_per_sample = 2,
                                        .dropout = dropped(1.0F)},
                   stream()),
               ContractError);
  EXPECT_THROW(run(ops::Cast{.to = three.view(), .from = four.view()}, stream()), ContractError);
  const auto db = tensor(DType::f32, 3);
  EXPECT_THROW(run(ops::Add{.sum = db.view(), .term = three.view().slice(0, 2)}, stream()),
               ContractError);
  EXPECT_THROW(run(ops::Add{.sum = integers.view(), .term = integers.view()}, stream()),
               ContractError);
  EXPECT_THROW(run(ops::BiasBackward{.db = db.view(), .dy = four.view()}, stream()), ContractError);
}

TRIREME_ON_BACKENDS(ElementwiseTest);

TEST(Dropout, IsKeptWithProbabilityOneMinusRate) {
  for (const float rate : {0.0F, 0.1F, 0.5F, 0.9F}) {
    const std::uint64_t first_sample = 0;
    const Dropout dropout{rate, RandomKey::of(1, Draw::dropout), &first_sample, 0};
    const int n = 100000;
    double sum = 0;
    for (int e = 0; e < n; ++e)
      sum += static_cast<double>(ops::dropout_factor(dropout, 0, static_cast<std::uint64_t>(e)));
    EXPECT_NEAR(sum / n, 1.0, 5 * std::sqrt(static_cast<double>(rate / (1 - rate)) / n) + 1e-6);
  }
}

}  // namespace
}  // namespace trireme::test
