// SPDX-License-Identifier: Apache-2.0
#include "train/epochs.hpp"

#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "batches/counting_stream.hpp"

namespace trireme::train {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Epochs, BeginWithTheStepThatReadsTheirFirstSample) {
  const batches::Dataset data{
      {batches::Windows(std::make_shared<batches::CountingStream>(81), 0, 81, 4)},
      {batches::MixtureOrder::block},
      1};
  ASSERT_EQ(data.parts()[0].size(), 20);
  EXPECT_THAT(epochs_ended(data, 0, 20), IsEmpty());
  EXPECT_THAT(epochs_ended(data, 20, 28), ElementsAre("epoch 2 begins"));
  EXPECT_THAT(epochs_ended(data, 12, 24), ElementsAre("epoch 2 begins"));
  EXPECT_THAT(epochs_ended(data, 24, 40), IsEmpty());
  EXPECT_THAT(epochs_ended(data, 40, 81), ElementsAre("epoch 5 begins"));
}

}  // namespace
}  // namespace trireme::train
