// SPDX-License-Identifier: Apache-2.0
// The engine over NCCL, on two or three ranks that share a GPU (support/shared_gpu.hpp): its
// results equal those of a plain loop to the bit. Every collective between such ranks takes
// milliseconds, so only a few settings are tested.
#include <vector>

#include <gtest/gtest.h>

#include "comm/control/mpi_world.hpp"
#include "reduce/coded_steps.hpp"

#include "support/shared_gpu.hpp"

namespace trireme::reduce {
namespace {

using namespace trireme::testing;

class EngineOverNccl : public test::OverNccl {
 protected:
  void expect_the_plain_loop(Setting setting) {
    constexpr int steps = 3;
    setting.dtype = GetParam();
    EXPECT_EQ(train(setting, steps, *communicator_, *device_, *compute_),
              train_plainly(setting, steps, world_.size()))
        << setting.text();
  }
};

TEST_P(EngineOverNccl, TrainsAsAPlainLoop) {
  for (const auto& [shard, text] : EnumNames<layout::Shard>::table)
    for (const bool overlaps : {true, false})
      expect_the_plain_loop({.shard = shard,
                             .overlap_gradients = overlaps,
                             .overlap_parameters = overlaps,
                             .cached_shards = overlaps});
  expect_the_plain_loop({.bucket_elements = 100'000, .tied = Tied::alone});
}

TEST_P(EngineOverNccl, RoundsGradientsThatAreSentAsBf16) {
  expect_the_plain_loop({.gradient_dtype = GradientDType::bf16});
}

TEST_P(EngineOverNccl, SendsGradientsInCodes) {
  for (Setting setting :
       {Setting{.shard = layout::Shard::none, .gradient_dtype = GradientDType::int8},
        Setting{.gradient_dtype = GradientDType::fp8}}) {
    setting.dtype = GetParam();
    EXPECT_EQ(train(setting, 3, *communicator_, *device_, *compute_, &world_),
              train_in_codes(setting, 3, world_.size()))
        << setting.text();
  }
}

/// NCCL's first sums, like all others, add two or three small integers. So on the same ranks,
/// factors have the same bits with and without overlap.
TEST_P(EngineOverNccl, SendsFactorsOfGradients) {
  Setting setting{.shard = layout::Shard::none, .gradient_rank = 2};
  const auto made = train(setting, 3, *communicator_, *device_, *compute_, &world_);
  setting.overlap_gradients = false;
  EXPECT_EQ(train(setting, 3, *communicator_, *device_, *compute_, &world_), made);
}

INSTANTIATE_TEST_SUITE_P(DTypes,
                         EngineOverNccl,
                         ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& made) { return std::string(name(made.param)); });

}  // namespace
}  // namespace trireme::reduce
