// SPDX-License-Identifier: Apache-2.0
// The dtype of a backend is used for parameters and moments.
#include "ops/optimizer/muon.hpp"

#include <bit>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.hpp"

#include "ops/tensors.hpp"

namespace trireme::test {
namespace {

using ops::GradientNorm;
using ops::MuonStep;

class MuonTest : public OpsTest {
 protected:
  void SetUp() override {
    OpsTest::SetUp();
    norms_ = device().allocate(3 * sizeof(GradientNorm), "test");
    GradientNorm values[] = {{.scale = 0.5F}, {.scale = 0.5F, .finite = 0}, {}};
    device().copy(norms_.view(DType::u8),
                  View(reinterpret_cast<std::byte*>(values), sizeof(values), DType::u8), stream());
    stream().synchronize();
  }
  void TearDown() override { norms_ = {}; }

  [[nodiscard]] const GradientNorm& norm(int which) const {
    return reinterpret_cast<const GradientNorm*>(norms_.data())[which];
  }
  [[nodiscard]] const GradientNorm& half() const { return norm(0); }
  [[nodiscard]] const GradientNorm& not_finite() const { return norm(1); }
  [[nodiscard]] const GradientNorm& whole() const { return norm(2); }

 private:
  device::Buffer norms_;
};

TEST_P(MuonTest, StepsByHand) {
  MuonStep step{.learning_rate = 0.5F, .weight_decay = 0.25F, .momentum = 0.75F, .gain = 0.25F};
  for (const bool nesterov : {true, false}) {
    step.nesterov = nesterov;
    // g = 4: m = 0.75 · 2 + 0.25 · 4 = 2.5; with Nesterov 0.25 · 4 + 0.75 · 2.5 = 2.875.
    const auto gradient = tensor(DType::f32, Values{8}), m = tensor(dtype(), Values{2});
    ops::run(
        ops::MuonDirection{
            .gradient = gradient.view(), .m = m.view(), .step = step, .norm = &half()},
        stream());
    EXPECT_EQ(m.values(), Values{2.5});
    EXPECT_EQ(gradient.values(), Values{nesterov ? 2.875 : 2.5});
  }
  const auto master = tensor(DType::f32, Values{4}), direction = tensor(DType::f32, Values{3}),
             parameter = tensor(dtype(), 1);
  ops::run(ops::MuonUpdate{.parameter = parameter.view(),
                           .master = master.view(),
                           .direction = direction.view(),
                           .step = step,
                           .norm = &half()},
           stream());
  EXPECT_EQ(master.values(), Values{2});  // 4 - 0.5 (3 + 0.25 · 4)
  EXPECT_EQ(parameter.values(), Values{2});
}

TEST_P(MuonTest, WritesNothingWhereTheNormIsNotFinite) {
  const auto gradient = tensor(DType::f32, Values{1}), m = tensor(dtype(), Values{2}),
             master = tensor(DType::f32, Values{3}), parameter = tensor(dtype(), Values{4});
  ops::run(
      ops::MuonDirection{
          .gradient = gradient.view(), .m = m.view(), .step = {}, .norm = &not_finite()},
      stream());
  ops::run(ops::MuonUpdate{.parameter = parameter.view(),
                           .master = master.view(),
                           .direction = gradient.view(),
                           .step = {},
                           .norm = &not_finite()},
           stream());
  for (const auto& [one, value] :
       {std::pair{&gradient, 1.0}, {&m, 2.0}, {&master, 3.0}, {&parameter, 4.0}})
    EXPECT_EQ(one->values(), Values{value});
}

TEST_P(MuonTest, EveryElementIsUpdated) {
  for (const std::int64_t n : {1, 17, 40'001}) {
    const auto size = static_cast<std::size_t>(n);
    const auto gradient = tensor(DType::f32, Values(size, 4)), m = tensor(dtype(), n),
               master = tensor(DType::f32, Values(size, 1)),
               parameter = tensor(dtype(), Values(size, 9));
    const MuonStep step{.learning_rate = 0.5F, .momentum = 0, .gain = 1, .nesterov = false};
    ops::run(
        ops::MuonDirection{
            .gradient = gradient.view(), .m = m.view(), .step = step, .norm = &whole()},
        stream());
    ops::run(ops::MuonUpdate{.parameter = parameter.view(),
                             .master = master.view(),
                             .direction = gradient.view(),
                             .step = step,
                             .norm = &whole()},
             stream());
    EXPECT_EQ(m.values(), Values(size, 4));
    EXPECT_EQ(master.values(), Values(size, -1));
    EXPECT_EQ(parameter.values(), Values(size, -1));
  }
}

/// Shards may begin anywhere, so a kernel must compute an element the same way at every offset.
TEST_P(MuonTest, AnElementsBitsDoNotDependOnItsPlace) {
  constexpr std::int64_t n = 1000;
  const MuonStep step{
      .learning_rate = 0.3F, .weight_decay = 0.1F, .momentum = 0.95F, .gain = 0.05F};
  const Values gradients = normals(1, n), moments = normals(2, n), masters = normals(3, n);
  const auto run = [&](std::int64_t first, std::int64_t count, std::int64_t shift) {
    const auto begin = [&](const Values& all) {
      Values part(static_cast<std::size_t>(shift));
      part.insert(part.end(), all.begin() + first, all.begin() + first + count);
      return part;
    };
    const auto gradient = tensor(DType::f32, begin(gradients)), m = tensor(dtype(), begin(moments)),
               master = tensor(DType::f32, begin(masters)),
               parameter = tensor(dtype(), shift + count);
    const auto at = [&](const Tensor& whole) { return whole.view().slice(shift, count); };
    ops::run(ops::MuonDirection{.gradient = at(gradient),
                                .m = at(m),
                                .step = step,
                                .rounding = {{5, 6}, 3, 2, first},
                                .norm = &half()},
             stream());
    ops::run(ops::MuonUpdate{.parameter = at(parameter),
                             .master = at(master),
                             .direction = at(gradient),
                             .step = step,
                             .norm = &half()},
             stream());
    Values all;
    for (const Tensor* one : {&gradient, &m, &master, &parameter}) {
      const Values values = one->values();
      all.insert(all.end(), values.begin() + shift, values.end());
    }
    return all;
  };
  const Values whole = run(0, n, 0);
  const auto part_of = [&](std::int64_t first, std::int64_t count) {
    Values part;
    for (std::int64_t k = 0; k < 4; ++k)
      part.insert(part.end(), whole.begin() + k * n + first, whole.begin() + k * n + first + count);
    return part;
  };
  for (const auto& [first, count, shift] :
       {std::tuple{std::int64_t{0}, n, std::int64_t{1}}, {1, 200, 0}, {6, 37, 3}, {999, 1, 2}})
    EXPECT_EQ(run(first, count, shift), part_of(first, count)) << first << ", " << shift;
}

TEST_P(MuonTest, RoundsAMomentInBf16ByTheWordOfItsElement) {
  const MuonStep step{.momentum = 0.75F, .gain = 0.25F};
  const ops::MomentRounding rounding{{5, 6}, 3, 2, 1};
  for (const std::int64_t n : {1, 63, 40'001}) {
    Values values;
    for (std::int64_t i = 0; i < n; ++i)
      values.push_back(static_cast<double>((i * 7919) % 4093) / 64 - 31);
    const auto gradient = tensor(DType::f32, values), directed = tensor(DType::f32, values),
               exact = tensor(DType::f32, n), m = tensor(DType::bf16, n);
    ops::run(ops::MuonDirection{.gradient = gradient.view(),
                                .m = exact.view(),
                                .step = step,
                                .rounding = rounding,
                                .norm = &half()},
             stream());
    ops::run(ops::MuonDirection{.gradient = directed.view(),
                                .m = m.view(),
                                .step = step,
                                .rounding = rounding,
                                .norm = &half()},
             stream());
    EXPECT_EQ(directed.bytes(), gradient.bytes());  // it uses the moment before rounding
    const Values kept = m.values(), moments = exact.values();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint32_t word =
          philox({5, 6}, (std::uint64_t{2} << 40U) + (i + 1) / 4, 3).w[(i + 1) % 4];
      Bf16 expected;
      expected.bits = static_cast<std::uint16_t>(
          (std::bit_cast<std::uint32_t>(static_cast<float>(moments[i])) + (word & 0xffffU)) >> 16U);
      ASSERT_EQ(kept[i], static_cast<double>(static_cast<float>(expected))) << i;
    }
  }
}

TRIREME_ON_BACKENDS(MuonTest);

}  // namespace
}  // namespace trireme::test
