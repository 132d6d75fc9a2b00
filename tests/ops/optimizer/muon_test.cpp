// SPDX-License-Identifier: Apache-2.0
#include "ops/optimizer/muon.hpp"

#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.hpp"

#include "ops/tensors.hpp"

namespace trireme::test {
namespace {

using ops::GradientNorm;
using ops::MuonStep;

class MuonTest : public ::testing::Test {
 protected:
  std::unique_ptr<device::Device> device_ = device::make_cpu_device(1);
  std::unique_ptr<device::Stream> stream_ =
      device_->make_stream(device::StreamMode::inlined, "compute");
};

TEST_F(MuonTest, StepsByHand) {
  MuonStep step{.learning_rate = 0.5F, .weight_decay = 0.25F, .momentum = 0.75F, .gain = 0.25F};
  const GradientNorm norm{.scale = 0.5F};
  for (const bool nesterov : {true, false}) {
    step.nesterov = nesterov;
    // g = 4: m = 0.75 · 2 + 0.25 · 4 = 2.5; with Nesterov 0.25 · 4 + 0.75 · 2.5 = 2.875.
    float gradient = 8, m = 2;
    ops::muon_direction(view_of(&gradient, 1), view_of(&m, 1), step, {}, norm, *stream_);
    EXPECT_EQ(m, 2.5F);
    EXPECT_EQ(gradient, nesterov ? 2.875F : 2.5F);
  }
  float master = 4;
  const float direction = 3;
  Bf16 parameter;
  ops::muon_update(view_of(&parameter, 1), view_of(&master, 1), view_of(&direction, 1), step, norm,
                   *stream_);
  EXPECT_EQ(master, 2.0F);  // 4 - 0.5 (3 + 0.25 · 4)
  EXPECT_EQ(static_cast<float>(parameter), 2.0F);
}

TEST_F(MuonTest, WritesNothingWhereTheNormIsNotFinite) {
  const GradientNorm norm{.finite = 0};
  float gradient = 1, m = 2, master = 3, parameter = 4;
  ops::muon_direction(view_of(&gradient, 1), view_of(&m, 1), {}, {}, norm, *stream_);
  ops::muon_update(view_of(&parameter, 1), view_of(&master, 1), view_of(&gradient, 1), {}, norm,
                   *stream_);
  EXPECT_EQ((std::vector<float>{gradient, m, master, parameter}), (std::vector<float>{1, 2, 3, 4}));
}

TEST_F(MuonTest, EveryElementIsUpdated) {
  for (const std::int64_t n : {1, 17, 40'001}) {
    const auto size = static_cast<std::size_t>(n);
    std::vector<float> gradient(size, 4), m(size, 0), master(size, 1), parameter(size, 9);
    const MuonStep step{.learning_rate = 0.5F, .momentum = 0, .gain = 1, .nesterov = false};
    ops::muon_direction(view_of(gradient.data(), n), view_of(m.data(), n), step, {}, {}, *stream_);
    ops::muon_update(view_of(parameter.data(), n), view_of(master.data(), n),
                     view_of(gradient.data(), n), step, {}, *stream_);
    EXPECT_EQ(m, std::vector<float>(size, 4));
    EXPECT_EQ(master, std::vector<float>(size, -1));
    EXPECT_EQ(parameter, master);
  }
}

TEST_F(MuonTest, RoundsAMomentInBf16ByTheWordOfItsElement) {
  const MuonStep step{.momentum = 0.75F, .gain = 0.25F};
  const GradientNorm norm{.scale = 0.5F};
  const ops::MomentRounding rounding{{5, 6}, 3, 2, 1};
  for (const std::int64_t n : {1, 63, 40'001}) {
    const auto size = static_cast<std::size_t>(n);
    std::vector<float> gradient(size), directed(size), exact(size);
    std::vector<Bf16> m(size);
    for (std::size_t i = 0; i < size; ++i)
      gradient[i] = directed[i] = static_cast<float>((i * 7919) % 4093) / 64 - 31;
    ops::muon_direction(view_of(gradient.data(), n), view_of(exact.data(), n), step, rounding, norm,
                        *stream_);
    ops::muon_direction(view_of(directed.data(), n), view_of(m.data(), n), step, rounding, norm,
                        *stream_);
    EXPECT_EQ(directed, gradient);  // it takes the moment before that is rounded
    for (std::size_t i = 0; i < size; ++i) {
      const std::uint32_t word =
          philox({5, 6}, (std::uint64_t{2} << 40U) + (i + 1) / 4, 3).w[(i + 1) % 4];
      ASSERT_EQ(m[i].bits, (std::bit_cast<std::uint32_t>(exact[i]) + (word & 0xffffU)) >> 16U) << i;
    }
  }
}

}  // namespace
}  // namespace trireme::test
