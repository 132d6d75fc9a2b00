// SPDX-License-Identifier: Apache-2.0
#include "ops/optimizer/adamw.hpp"

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

  [[nodiscard]] const GradientNorm& norm(bool finite = true) const {
    return reinterpret_cast<const GradientNorm*>(norms_.data())[finite ? 0 : 1];
  }

 private:
  device::Buffer norms_;
};

TEST_P(AdamwTest, FirstStepByHand) {
  // After bias correction the first step is sign(g) · learning rate, and decay takes 1/100 · 1/8.
  auto parameter = tensor(dtype(), Values{1, 1, 0}), master = tensor(DType::f32, Values{1, 1, 0});
  auto m = tensor(DType::f32, 3), v = tensor(DType::f32, 3);
  const auto gradient = tensor(DType::f32, Values{4, -4, 0});
  ops::adamw(parameter.view(), master.view(), m.view(), v.view(), gradient.view(), at_step(1),
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
      ops::adamw(parameter.view(), master.view(), m.view(), v.view(), gradient.view(), at_step(k),
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
  ops::adamw(copy.view(), apart.view(), m1.view(), v1.view(), gradient.view(), at_step(1), norm(),
             stream());
  ops::adamw(same.view(), same.view(), m2.view(), v2.view(), gradient.view(), at_step(1), norm(),
             stream());
  EXPECT_EQ(same.bytes(), apart.bytes());
  EXPECT_EQ(same.bytes(), copy.bytes());
}

TEST_P(AdamwTest, DoesNotDependOnTheCutOrOnThreads) {
  // Sharded and unsharded optimizers give the same bits: every element stands alone.
  const std::int64_t n = 50003;
  const auto gradient = tensor(DType::f32, normals(2, n));
  const auto run = [&](const std::vector<std::int64_t>& cuts) {
    auto parameter = tensor(dtype(), n), master = tensor(DType::f32, normals(1, n));
    auto m = tensor(DType::f32, n), v = tensor(DType::f32, n);
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      const auto at = [&](const Tensor& t) {
        return t.view().slice(cuts[i], cuts[i + 1] - cuts[i]);
      };
      ops::adamw(at(parameter), at(master), at(m), at(v), at(gradient), at_step(1), norm(),
                 stream());
    }
    return joined({&parameter, &master, &m, &v});
  };
  expect_same_on_threads([&] { return run({0, n}); });
  EXPECT_TRUE(run({0, n}) == run({0, 1, 64, 20011, n}));
}

TEST_P(AdamwTest, WritesNothingWhereTheNormIsNotFinite) {
  const std::int64_t n = 16385;
  auto parameter = tensor(dtype(), normals(1, n)), master = tensor(DType::f32, normals(2, n));
  auto m = tensor(DType::f32, normals(3, n)), v = tensor(DType::f32, normals(4, n));
  const auto gradient = tensor(DType::f32, normals(5, n));
  const auto run = [&](bool finite) {
    ops::adamw(parameter.view(), master.view(), m.view(), v.view(), gradient.view(), at_step(1),
               norm(finite), stream());
    return joined({&parameter, &master, &m, &v});
  };
  const auto before = joined({&parameter, &master, &m, &v});
  EXPECT_TRUE(run(false) == before);
  EXPECT_FALSE(run(true) == before);
}

TEST_P(AdamwTest, RejectsWrongViews) {
  const auto parameter = tensor(dtype(), 3), three = tensor(DType::f32, 3),
             four = tensor(DType::f32, 4), integers = tensor(DType::i32, 3);
  EXPECT_THROW(ops::adamw(parameter.view(), four.view(), three.view(), three.view(), three.view(),
                          {}, norm(), stream()),
               ContractError);
  EXPECT_THROW(ops::adamw(parameter.view(), three.view(), three.view(), three.view(),
                          integers.view(), {}, norm(), stream()),
               ContractError);
}

TRIREME_ON_BACKENDS(AdamwTest);

}  // namespace
}  // namespace trireme::test
