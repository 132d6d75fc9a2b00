// SPDX-License-Identifier: Apache-2.0
#include "ops/optimizer/adamw.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "base/random.hpp"

#include "ops/tensors.hpp"

namespace trireme::test {
namespace {

using ops::AdamwStep;
using ops::GradientNorm;

struct State {
  Values master, m, v;
};

constexpr float factor = 0.5F;

void step_reference(State& state, const Values& gradient, const AdamwStep& s) {
  const auto exact = [](float x) { return static_cast<double>(x); };
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const double g = exact(factor) * gradient[i];
    state.m[i] = exact(s.beta1) * state.m[i] + (1 - exact(s.beta1)) * g;
    state.v[i] = exact(s.beta2) * state.v[i] + (1 - exact(s.beta2)) * g * g;
    state.master[i] -= exact(s.learning_rate) *
                       (state.m[i] / exact(s.correction1) /
                            (std::sqrt(state.v[i] / exact(s.correction2)) + exact(s.epsilon)) +
                        exact(s.weight_decay) * state.master[i]);
  }
}

AdamwStep at_step(int k) {
  AdamwStep s{.learning_rate = 0.01F,
              .beta1 = 0.875F,
              .beta2 = 0.9375F,
              .epsilon = 1e-8F,
              .weight_decay = 0.125F,
              .gain1 = 0.125F,
              .gain2 = 0.0625F};
  s.correction1 = static_cast<float>(1 - std::pow(0.875, k));
  s.correction2 = static_cast<float>(1 - std::pow(0.9375, k));
  return s;
}

class AdamwTest : public OpsTest {
 protected:
  void SetUp() override {
    OpsTest::SetUp();
    norms_ = device().allocate(2 * sizeof(GradientNorm), "test");
    GradientNorm values[] = {{.scale = factor}, {.scale = factor, .finite = 0}};
    device().copy(norms_.view(DType::u8),
                  View(reinterpret_cast<std::byte*>(values), sizeof(values), DType::u8), stream());
    stream().synchronize();
  }
  void TearDown() override { norms_ = {}; }

  static void adamw(View parameter,
                    View master,
                    View m,
                    View v,
                    ConstView gradient,
                    const AdamwStep& step,
                    const ops::MomentRounding& rounding,
                    const GradientNorm& norm,
                    device::Stream& stream) {
    ops::run(ops::Adamw{parameter, master, m, v, gradient, step, rounding, &norm}, stream);
  }

  [[nodiscard]] const GradientNorm& norm(bool finite = true) const {
    return reinterpret_cast<const GradientNorm*>(norms_.data())[finite ? 0 : 1];
  }

 private:
  device::Buffer norms_;
};

TEST_P(AdamwTest, FirstStepByHand) {
  // After bias correction the first step is sign(g) · learning rate; decay takes 1/100 · 1/8.
  auto parameter = tensor(dtype(), Values{1, 1, 0}), master = tensor(DType::f32, Values{1, 1, 0});
  auto m = tensor(DType::f32, 3), v = tensor(DType::f32, 3);
  const auto gradient = tensor(DType::f32, Values{4, -4, 0});
  adamw(parameter.view(), master.view(), m.view(), v.view(), gradient.view(), at_step(1), {},
        norm(), stream());
  expect_near(master.values(), {0.98875, 1.00875, 0}, 1e-6, "master");
  expect_near(m.values(), {0.25, -0.25, 0}, 1e-6, "m");
  expect_near(v.values(), {0.25, 0.25, 0}, 1e-6, "v");
  EXPECT_EQ(parameter.values(), rounded_to(dtype(), master.values()));
}

TEST_P(AdamwTest, FollowsTheReferenceForSeveralSteps) {
  for (const std::int64_t n : {1, 17, 16385}) {
    SCOPED_TRACE(n);
    const auto size = static_cast<std::size_t>(n);
    State state{rounded_to(DType::f32, normals(1, n)), Values(size), Values(size)};
    auto parameter = tensor(dtype(), n), master = tensor(DType::f32, state.master);
    auto m = tensor(DType::f32, n), v = tensor(DType::f32, n);
    for (int k = 1; k <= 5; ++k) {
      const auto gv = rounded_to(DType::f32, normals(10 + static_cast<std::uint64_t>(k), n));
      const auto gradient = tensor(DType::f32, gv);
      adamw(parameter.view(), master.view(), m.view(), v.view(), gradient.view(), at_step(k), {},
            norm(), stream());
      step_reference(state, gv, at_step(k));
    }
    expect_near(master.values(), state.master, fp32_tolerances.adamw, "master");
    expect_near(m.values(), state.m, fp32_tolerances.adamw, "m");
    expect_near(v.values(), state.v, fp32_tolerances.adamw, "v");
    EXPECT_EQ(parameter.values(), rounded_to(dtype(), master.values()));
  }
}

TEST_P(AdamwTest, MasterMayBeTheParameter) {
  auto apart = tensor(DType::f32, normals(1, 99)), copy = tensor(DType::f32, 99),
       same = tensor(DType::f32, normals(1, 99));
  auto m1 = tensor(DType::f32, 99), v1 = tensor(DType::f32, 99), m2 = tensor(DType::f32, 99),
       v2 = tensor(DType::f32, 99);
  const auto gradient = tensor(DType::f32, normals(2, 99));
  adamw(copy.view(), apart.view(), m1.view(), v1.view(), gradient.view(), at_step(1), {}, norm(),
        stream());
  adamw(same.view(), same.view(), m2.view(), v2.view(), gradient.view(), at_step(1), {}, norm(),
        stream());
  EXPECT_EQ(same.bytes(), apart.bytes());
  EXPECT_EQ(same.bytes(), copy.bytes());
}

TEST_P(AdamwTest, DoesNotDependOnTheCutOrOnThreads) {
  // Sharded and unsharded optimizers give the same bits: each element is computed independently.
  const std::int64_t n = 50003;
  const auto gradient = tensor(DType::f32, normals(2, n));
  const auto run = [&](const std::vector<std::int64_t>& cuts) {
    auto parameter = tensor(dtype(), n), master = tensor(DType::f32, normals(1, n));
    auto m = tensor(DType::f32, n), v = tensor(DType::f32, n);
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      const auto at = [&](const Tensor& t) {
        return t.view().slice(cuts[i], cuts[i + 1] - cuts[i]);
      };
      adamw(at(parameter), at(master), at(m), at(v), at(gradient), at_step(1), {}, norm(),
            stream());
    }
    return joined({&parameter, &master, &m, &v});
  };
  expect_same_on_threads([&] { return run({0, n}); });
  EXPECT_TRUE(run({0, n}) == run({0, 1, 64, 20011, n}));
}

/// Pieces of all sizes at all offsets with different numbers, more than one launch takes.
TEST_P(AdamwTest, UpdatesAListAsItsPiecesOneByOne) {
  std::vector<std::int64_t> begins{0};
  for (std::int64_t i = 0; i < 67; ++i)
    begins.push_back(begins.back() + std::vector<std::int64_t>{5, 64, 1, 1027, 0, 2048,
                                                               4}[static_cast<std::size_t>(i % 7)]);
  const std::int64_t n = begins.back();
  const auto gradient = tensor(DType::f32, normals(2, n));
  for (const DType moments : {DType::f32, DType::bf16}) {
    const auto run = [&](bool one_by_one) {
      auto parameter = tensor(dtype(), n), master = tensor(DType::f32, normals(1, n));
      auto m = tensor(moments, n), v = tensor(moments, n);
      std::vector<ops::Adamw> ranges;
      for (std::size_t i = 0; i + 1 < begins.size(); ++i) {
        const auto at = [&](const Tensor& t) {
          return t.view().slice(begins[i], begins[i + 1] - begins[i]);
        };
        AdamwStep step = at_step(1);
        step.learning_rate *= static_cast<float>(i + 1);
        step.weight_decay = i % 2 == 0 ? 0.0F : 0.125F;
        const auto first = static_cast<std::int64_t>(3 * i);
        ranges.push_back({at(parameter),
                          at(master),
                          at(m),
                          at(v),
                          at(gradient),
                          step,
                          {{5, 6}, 1, i, first},
                          &norm()});
      }
      if (one_by_one)
        for (const ops::Adamw& range : ranges) ops::run(range, stream());
      else
        ops::run(ranges, stream());
      return joined({&parameter, &master, &m, &v});
    };
    EXPECT_TRUE(run(false) == run(true)) << name(moments);
  }
}

TEST_P(AdamwTest, WritesNothingWhereTheNormIsNotFinite) {
  const std::int64_t n = 16385;
  auto parameter = tensor(dtype(), normals(1, n)), master = tensor(DType::f32, normals(2, n));
  auto m = tensor(DType::f32, normals(3, n)), v = tensor(DType::f32, normals(4, n));
  const auto gradient = tensor(DType::f32, normals(5, n));
  const auto run = [&](bool finite) {
    adamw(parameter.view(), master.view(), m.view(), v.view(), gradient.view(), at_step(1), {},
          norm(finite), stream());
    return joined({&parameter, &master, &m, &v});
  };
  const auto before = joined({&parameter, &master, &m, &v});
  EXPECT_TRUE(run(false) == before);
  EXPECT_FALSE(run(true) == before);
}

TEST_P(AdamwTest, RejectsWrongViews) {
  ops::run(std::span<const ops::Adamw>{}, stream());  // an empty list does nothing
  const auto parameter = tensor(dtype(), 3), three = tensor(DType::f32, 3),
             four = tensor(DType::f32, 4), integers = tensor(DType::i32, 3);
  EXPECT_THROW(adamw(parameter.view(), four.view(), three.view(), three.view(), three.view(), {},
                     {}, norm(), stream()),
               ContractError);
  EXPECT_THROW(adamw(parameter.view(), three.view(), three.view(), three.view(), integers.view(),
                     {}, {}, norm(), stream()),
               ContractError);
}

// Moments in bf16.

constexpr RandomKey rounding_key{0x1234567U, 0x89abcdefU};

/// The two bf16 neighbours of `x`: towards zero and away from it. Requires abs(x) < maximum.
std::pair<double, double> neighbours(double x) {
  const auto truncated = std::bit_cast<std::uint32_t>(static_cast<float>(x)) & 0xffff0000U;
  return {static_cast<double>(std::bit_cast<float>(truncated)),
          static_cast<double>(std::bit_cast<float>(truncated + 0x10000U))};
}

/// One of the two, chosen by a random half word as moment_rounding.hpp defines it: away from zero
/// if the part cut off is more than `0xffff - random` of 2^16.
double rounded_by(double x, std::uint32_t random) {
  const auto [near, far] = neighbours(x);
  const double cut_off = (x - near) / (far - near);
  return cut_off + random * 0x1p-16 >= 1 ? far : near;
}

/// Numbers with few bits, for which the moments of the first step are exact in fp32.
Values short_numbers(std::int64_t n) {
  Values values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>((i * 2654435761U) % 4093U) / 64 - 31;
  return values;
}

TEST_P(AdamwTest, RoundsMomentsInBf16ByTheWordOfTheirElement) {
  for (const std::int64_t n : {1, 5, 333, 16387, 40001})
    for (const std::int64_t first : {0, 1, 2, 63, 1000003}) {
      SCOPED_TRACE(::testing::Message() << n << " elements from " << first);
      const auto gv = short_numbers(n);
      auto parameter = tensor(dtype(), n), master = tensor(DType::f32, normals(1, n));
      auto m = tensor(DType::bf16, n), v = tensor(DType::bf16, n);
      const auto gradient = tensor(DType::f32, gv);
      constexpr std::uint64_t step = 3, index = 7;
      adamw(parameter.view(), master.view(), m.view(), v.view(), gradient.view(), at_step(1),
            {rounding_key, step, index, first}, norm(), stream());
      const auto got_m = m.values(), got_v = v.values();
      for (std::int64_t i = 0; i < n; ++i) {
        const auto e = static_cast<std::uint64_t>(first + i);
        const std::uint32_t word = philox(rounding_key, (index << 40U) + e / 4, step).w[e % 4];
        const double g = static_cast<double>(factor) * gv[static_cast<std::size_t>(i)];
        ASSERT_EQ(got_m[static_cast<std::size_t>(i)], rounded_by(0.125 * g, word & 0xffffU)) << i;
        ASSERT_EQ(got_v[static_cast<std::size_t>(i)], rounded_by(0.0625 * g * g, word >> 16U)) << i;
      }
    }
}

TEST_P(AdamwTest, UpdatesByMomentsAsTheyAreBeforeTheyAreRounded) {
  const std::int64_t n = 1000;
  const auto gradient = tensor(DType::f32, normals(2, n));
  const auto masters = [&](DType moments) {
    auto parameter = tensor(dtype(), n), master = tensor(DType::f32, normals(1, n));
    auto m = tensor(moments, n), v = tensor(moments, n);
    adamw(parameter.view(), master.view(), m.view(), v.view(), gradient.view(), at_step(1),
          {rounding_key, 1, 0, 0}, norm(), stream());
    return joined({&parameter, &master});
  };
  EXPECT_TRUE(masters(DType::bf16) == masters(DType::f32));
}

TEST_P(AdamwTest, RoundsBf16MomentsToANeighbourAndToTheNumberInTheMean) {
  // The same gradient for many steps, with moments reset to zero before each: the mean of n
  // roundings is within 5 standard deviations; an error is at most half a neighbour distance.
  const std::int64_t n = 64, steps = 4096;
  const auto gv = rounded_to(DType::f32, normals(9, n));
  const auto gradient = tensor(DType::f32, gv);
  auto parameter = tensor(dtype(), n), master = tensor(DType::f32, n);
  Values sum_m(gv.size()), sum_v(gv.size());
  for (std::int64_t k = 1; k <= steps; ++k) {
    auto m = tensor(DType::bf16, n), v = tensor(DType::bf16, n);
    adamw(parameter.view(), master.view(), m.view(), v.view(), gradient.view(), at_step(1),
          {rounding_key, static_cast<std::uint64_t>(k), 2, 5}, norm(), stream());
    const auto got_m = m.values(), got_v = v.values();
    for (std::size_t i = 0; i < gv.size(); ++i) {
      sum_m[i] += got_m[i];
      sum_v[i] += got_v[i];
    }
  }
  const auto expect_mean = [&](double sum, double exact) {
    const auto [near, far] = neighbours(exact);
    const double deviation = std::abs(far - near) / 2 / std::sqrt(static_cast<double>(steps));
    EXPECT_NEAR(sum / static_cast<double>(steps), exact, 5 * deviation + 1e-6 * std::abs(exact));
  };
  for (std::size_t i = 0; i < gv.size(); ++i) {
    SCOPED_TRACE(i);
    const double g = static_cast<double>(factor) * gv[i];
    expect_mean(sum_m[i], 0.125 * g);
    expect_mean(sum_v[i], 0.0625 * g * g);
  }
}

TEST_P(AdamwTest, FollowsTheReferenceWithBf16MomentsAsFarAsTheyAreKept) {
  // Each rounding has an error of at most 1/128 of a moment, and later steps reduce it by beta.
  const std::int64_t n = 16385;
  State state{rounded_to(DType::f32, normals(1, n)), Values(n), Values(n)};
  auto parameter = tensor(dtype(), n), master = tensor(DType::f32, state.master);
  auto m = tensor(DType::bf16, n), v = tensor(DType::bf16, n);
  Values largest(n);  // largest first moments so far
  double sum = 0, sum_of_squares = 0;
  for (int k = 1; k <= 20; ++k) {
    const auto gv = rounded_to(DType::f32, normals(10 + static_cast<std::uint64_t>(k), n));
    const auto gradient = tensor(DType::f32, gv);
    adamw(parameter.view(), master.view(), m.view(), v.view(), gradient.view(), at_step(k),
          {rounding_key, static_cast<std::uint64_t>(k), 0, 0}, norm(), stream());
    step_reference(state, gv, at_step(k));
    for (std::size_t i = 0; i < largest.size(); ++i)
      largest[i] = std::max(largest[i], std::abs(state.m[i]));
  }
  const auto got_m = m.values(), got_v = v.values();
  for (std::size_t i = 0; i < largest.size(); ++i) {
    ASSERT_NEAR(got_m[i], state.m[i], largest[i] / 128 / 0.125) << i;
    const double error = (got_v[i] - state.v[i]) / state.v[i];
    sum += error;
    sum_of_squares += error * error;
  }
  // No drift: the mean error of the second moments is 0 within 5 standard deviations.
  EXPECT_LT(std::abs(sum), 5 * std::sqrt(sum_of_squares));
}

TEST_P(AdamwTest, Bf16MomentsDoNotDependOnTheCutOrOnThreads) {
  const std::int64_t n = 50003;
  const auto gradient = tensor(DType::f32, normals(2, n));
  const auto run = [&](const std::vector<std::int64_t>& cuts) {
    auto parameter = tensor(dtype(), n), master = tensor(DType::f32, normals(1, n));
    auto m = tensor(DType::bf16, n), v = tensor(DType::bf16, n);
    for (std::uint64_t step = 1; step <= 3; ++step)
      for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
        const auto at = [&](const Tensor& t) {
          return t.view().slice(cuts[i], cuts[i + 1] - cuts[i]);
        };
        adamw(at(parameter), at(master), at(m), at(v), at(gradient), at_step(1),
              {rounding_key, step, 1, cuts[i]}, norm(), stream());
      }
    return joined({&parameter, &master, &m, &v});
  };
  expect_same_on_threads([&] { return run({0, n}); });
  EXPECT_TRUE(run({0, n}) == run({0, 1, 64, 20011, n}));
}

TEST(MomentRounding, KeepsWhatABf16HoldsAndWhatIsNoNumber) {
  const auto rounded = [](float x, std::uint32_t random) {
    return std::bit_cast<float>(ops::rounded_at_random(std::bit_cast<std::uint32_t>(x), random)
                                << 16U);
  };
  const float largest = std::bit_cast<float>(0x7f7f0000U), infinity = INFINITY;
  for (const std::uint32_t random : {0U, 1U, 0x8000U, 0xffffU}) {
    for (const float x :
         {0.0F, -0.0F, 1.0F, -1.5F, 0x1p-126F, 0x1p-133F, largest, infinity, -infinity})
      EXPECT_EQ(std::bit_cast<std::uint32_t>(rounded(x, random)), std::bit_cast<std::uint32_t>(x));
    EXPECT_TRUE(std::isnan(rounded(NAN, random)));
    EXPECT_TRUE(std::isnan(rounded(std::bit_cast<float>(0x7f800001U), random)));
    EXPECT_EQ(rounded(std::numeric_limits<float>::max(), random), largest);
    EXPECT_EQ(rounded(-std::numeric_limits<float>::max(), random), -largest);
  }
  EXPECT_EQ(rounded(1 + 0x1p-9F, 0x7fffU), 1.0F);
  EXPECT_EQ(rounded(1 + 0x1p-9F, 0xc000U), 1 + 0x1p-7F);
  EXPECT_EQ(rounded(-1 - 0x1p-9F, 0xc000U), -1 - 0x1p-7F);
}

TRIREME_ON_BACKENDS(AdamwTest);

}  // namespace
}  // namespace trireme::test
