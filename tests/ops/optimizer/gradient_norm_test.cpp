// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <limits>

#include "ops/optimizer/reductions.hpp"
#include "ops/tensors.hpp"

namespace trireme::test {
namespace {

using ops::GradientNorm;

class GradientNormTest : public OpsTest {
 protected:
  void SetUp() override {
    OpsTest::SetUp();
    norm_ = device().allocate(sizeof(GradientNorm), "test");
  }
  void TearDown() override { norm_ = {}; }

  GradientNorm& norm() { return *reinterpret_cast<GradientNorm*>(norm_.data()); }

  GradientNorm of(double squares, const ops::Clipping& clipping) {
    const auto there = tensor(DType::f64, 1);
    device().copy(there.view(), view_of(&squares, 1), stream());
    ops::gradient_norm(norm(), there.view(), clipping, stream());
    GradientNorm result;
    device().copy(View(reinterpret_cast<std::byte*>(&result), sizeof(result), DType::u8),
                  norm_.view(DType::u8), stream());
    stream().synchronize();
    return result;
  }

 private:
  device::Buffer norm_;
};

TEST_P(GradientNormTest, ClipsByHand) {
  const GradientNorm free = of(9, {0.5, 0});
  EXPECT_EQ(free.norm, 1.5);
  EXPECT_EQ(free.scale, 0.5F);
  EXPECT_EQ(free.finite, 1);
  const GradientNorm clipped = of(64, {0.5, 1});  // a norm of 4
  EXPECT_EQ(clipped.norm, 4.0);
  EXPECT_EQ(clipped.scale, static_cast<float>(0.5 * (1 / (4 + 1e-6))));
  const GradientNorm small = of(0.25, {0.5, 1});
  EXPECT_EQ(small.norm, 0.25);
  EXPECT_EQ(small.scale, 0.5F);
  EXPECT_EQ(of(0, {1, 1}).scale, 1.0F);
}

TEST_P(GradientNormTest, HasTheHostsBits) {
  for (const double squares : normals(3, 50)) {
    const double sum = squares * squares * 1e3, gradient_scale = 1.0 / 12;
    const double norm = std::sqrt(sum) * gradient_scale;
    const GradientNorm got = of(sum, {gradient_scale, 0.7});
    EXPECT_EQ(got.norm, norm);
    EXPECT_EQ(got.scale, static_cast<float>(gradient_scale * std::min(1.0, 0.7 / (norm + 1e-6))));
  }
}

TEST_P(GradientNormTest, FindsWhatIsNotFinite) {
  EXPECT_EQ(of(std::numeric_limits<double>::infinity(), {1, 1}).finite, 0);
  EXPECT_EQ(of(std::nan(""), {1, 1}).finite, 0);
  EXPECT_EQ(of(std::numeric_limits<double>::max(), {1, 1}).finite, 1);
}

TEST_P(GradientNormTest, APlaceIsLookedForOnlyWhereTheNormIsNotFinite) {
  Values values = normals(1, 5000);
  values[1234] = std::nan("");
  const auto there = tensor(DType::f32, values);
  const device::Buffer shared = device().allocate_shared_with_host(sizeof(std::int64_t), "test");
  auto& first = *reinterpret_cast<std::int64_t*>(shared.data());
  first = -7;
  of(1, {});
  ops::find_not_finite({&first, 1}, std::array<ConstView, 1>{there.view()}, stream(), &norm());
  stream().synchronize();
  EXPECT_EQ(first, -1);
  of(std::nan(""), {});
  ops::find_not_finite({&first, 1}, std::array<ConstView, 1>{there.view()}, stream(), &norm());
  stream().synchronize();
  EXPECT_EQ(first, 1234);
}

TRIREME_ON_BACKENDS(GradientNormTest);

}  // namespace
}  // namespace trireme::test
