// SPDX-License-Identifier: Apache-2.0
// Which attention a GPU computes without tensor cores, as `trireme check` names it.
#include <fmt/format.h>
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
