// SPDX-License-Identifier: Apache-2.0
// Which attention a GPU computes without tensor cores, as `trireme check` names it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/attention.hpp"

namespace trireme::test {
namespace {

TEST(AttentionOnGpu, NamesWhatMakesItSlow) {
  const ops::AttentionShape quick{
      .batch = 2, .time = 100, .heads = 4, .head_channels = 64, .dtype = DType::bf16};
  EXPECT_EQ(ops::slow_on_gpu(quick), "");
  auto other = quick;
  other.drops = true;
  EXPECT_EQ(ops::slow_on_gpu(other), "dropout");
  other.dtype = DType::f32;
  EXPECT_EQ(ops::slow_on_gpu(other), "");
  other = quick;
  other.grouped_heads = 2;
  EXPECT_EQ(ops::slow_on_gpu(other), "grouped heads");
  other = quick;
  other.head_channels = 60;
  EXPECT_THAT(ops::slow_on_gpu(other), ::testing::HasSubstr("heads of 60 channels"));
}

}  // namespace
}  // namespace trireme::test
