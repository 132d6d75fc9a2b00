// SPDX-License-Identifier: Apache-2.0
// What is known about attention on a GPU without one: which kernels compute a shape, their scratch,
// and whether they can be captured.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/attention.hpp"
#include "ops/attention_backend.hpp"

namespace trireme::test {
namespace {

TEST(AttentionOnGpu, EstimatesItsScratch) {
  // 2 x 4 heads: 65 sums each; 65 positions are two tiles of 64, so dP is 128 x 128.
  const std::size_t sums = 4U * 8 * 65, plan = ops::Attention::cudnn_plan_bytes;
  EXPECT_EQ(ops::Attention::gpu_scratch_bytes({2, 65, 4, 32, DType::f32}), sums);
  EXPECT_EQ(ops::Attention::gpu_scratch_bytes({2, 65, 4, 32, DType::bf16}),
            sums + 2U * 8 * 128 * 128 + 2 * plan);
  EXPECT_EQ(ops::Attention::gpu_scratch_bytes({2, 65, 4, 32, DType::bf16, true}), sums + plan);
  EXPECT_EQ(ops::Attention::gpu_scratch_bytes({2, 65, 4, 33, DType::bf16}), sums);
  EXPECT_EQ(
      ops::Attention::gpu_scratch_bytes({2, 65, 4, 32, DType::bf16}, {.deterministic = false}),
      sums + 4U * 8 * 65 * 32 + 2 * plan);
  EXPECT_EQ(ops::Attention::gpu_scratch_bytes({2, 65, 4, 32, DType::bf16},
                                              {.kernels = ops::AttentionKernels::own}),
            sums);
  // cuDNN's front end would place the plan's workspace at 3 x 65 x 4 bytes: aligned only to 4.
  EXPECT_EQ(ops::Attention::gpu_scratch_bytes({2, 65, 3, 32, DType::bf16}), 4U * 6 * 65);
}

/// cuDNN before 9.16 pads to multiples of 128; shapes that it does not compute are not padded.
TEST(AttentionOnGpu, IsCapturedWhereCudnnCopiesNothing) {
  const ops::AttentionShape padded{
      .batch = 2, .time = 100, .heads = 2, .head_channels = 64, .dtype = DType::bf16};
  EXPECT_FALSE(ops::may_be_captured(padded, 90100));
  EXPECT_FALSE(ops::may_be_captured(padded, 91501));
  EXPECT_TRUE(ops::may_be_captured(padded, 91600));
  auto other = padded;
  other.time = 128;
  EXPECT_TRUE(ops::may_be_captured(other, 90100));
  other = padded;
  other.dtype = DType::f32;
  EXPECT_TRUE(ops::may_be_captured(other, 90100));
  other = padded;
  other.drops = true;
  EXPECT_TRUE(ops::may_be_captured(other, 90100));
}

TEST(AttentionOnGpu, NamesWhatMakesItSlow) {
  const ops::AttentionShape quick{
      .batch = 2, .time = 100, .heads = 4, .head_channels = 64, .dtype = DType::bf16};
  EXPECT_EQ(ops::slow_on_gpu(quick), "");
  auto other = quick;
  other.drops = true;
  other.grouped_heads = 2;
  other.window = 30;
  other.documents = true;
  EXPECT_EQ(ops::slow_on_gpu(other), "");
  other.time = 1;
  EXPECT_EQ(ops::slow_on_gpu(other), "");
  for (const std::int64_t channels : {60, 136}) {
    other = quick;
    other.head_channels = channels;
    EXPECT_THAT(ops::slow_on_gpu(other),
                ::testing::HasSubstr(fmt::format("heads of {} channels", channels)));
    other.dtype = DType::f32;
    EXPECT_EQ(ops::slow_on_gpu(other), "");
  }
}

}  // namespace
}  // namespace trireme::test
