// SPDX-License-Identifier: Apache-2.0
// Transfers of an optimizer between the engine's collectives: their order, times and misuse.
#include "reduce/transfers.hpp"

#include <array>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "device/cpu/cpu_stream.hpp"

namespace trireme::reduce {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::array buckets = {BucketIndex{4}, BucketIndex{1}};

/// Writes down what ran on the stream.
class Written final : public Carrier {
 public:
  void carry(BucketIndex bucket, Way way, device::Stream& stream) override {
    device::cpu::stream_of(stream).run([this, bucket, way] {
      carried.push_back((way == Way::there ? "there " : "back ") + std::to_string(at(bucket)));
    });
  }
  std::vector<std::string> carried;
};

class TransfersTest : public ::testing::TestWithParam<bool> {
 protected:
  TransfersTest() {
    transfers_.carry_by(&carrier_, buckets);
    transfers_.begin_step(1);
  }

  std::unique_ptr<device::Device> device_ = device::make_cpu_device(1);
  std::unique_ptr<device::Stream> compute_ =
      device_->make_stream(device::StreamMode::inlined, "compute");
  Written carrier_;
  CollectiveQueue queue_{*device_, GetParam(), 8};
  Transfers transfers_{*device_, *compute_, queue_, GetParam()};
};

TEST_P(TransfersTest, RunInTheOrderInWhichTheyBegin) {
  for (std::int64_t step = 1; step <= 3; ++step) {
    transfers_.begin_step(step);
    carrier_.carried.clear();
    for (const BucketIndex bucket : buckets) transfers_.begin(bucket, Way::there);
    transfers_.begin(buckets[0], Way::back);
    transfers_.begin(buckets[1], Way::back);
    transfers_.wait(buckets[1], Way::back);  // no wait has to be in their order
    transfers_.wait(buckets[1], Way::there);
    for (const Way way : {Way::there, Way::back}) transfers_.wait(buckets[0], way);
    EXPECT_THAT(carrier_.carried, ElementsAre("there 4", "there 1", "back 4", "back 1"));
  }
}

TEST_P(TransfersTest, HaveTimesInTheStepsInWhichTheyHappened) {
  for (const Way way : {Way::there, Way::back}) {
    transfers_.begin(buckets[1], way);
    transfers_.wait(buckets[1], way);
  }
  transfers_.begin_step(2);
  std::vector<TransferTimes> times;
  transfers_.take_times(2, times);
  EXPECT_THAT(times, IsEmpty());
  transfers_.take_times(1, times);
  ASSERT_EQ(times.size(), 2U);
  for (std::size_t i = 0; i < times.size(); ++i) {
    EXPECT_EQ(times[i].bucket, buckets[1]);
    EXPECT_EQ(times[i].way, i == 0 ? Way::there : Way::back);
    EXPECT_GT(times[i].start, 0);
    EXPECT_LE(times[i].start, times[i].end);
    EXPECT_LE(times[i].end, times[i].wait_begin + times[i].waited);
    if (!GetParam()) {
      EXPECT_LE(times[i].wait_begin, times[i].start);
    }
  }
  EXPECT_LE(times[0].end, times[1].start);
}

TEST_P(TransfersTest, RefuseWhatBelongsToNoTransfer) {
  EXPECT_THROW(transfers_.wait(buckets[0], Way::there), ContractError);
  transfers_.begin(buckets[0], Way::there);
  EXPECT_THROW(transfers_.begin(buckets[0], Way::there), ContractError);
  transfers_.wait(buckets[0], Way::there);
  EXPECT_THROW(transfers_.begin(BucketIndex{2}, Way::there), ContractError);
}

/// As after an exception between begin() and wait().
TEST_P(TransfersTest, EndBeforeTheirCarrierDoes) {
  {
    Written another;
    transfers_.carry_by(&another, buckets);
    for (const BucketIndex bucket : buckets) transfers_.begin(bucket, Way::there);
    transfers_.carry_by(nullptr, {});
    EXPECT_THAT(another.carried, ElementsAre("there 4", "there 1"));
    transfers_.carry_by(&another, buckets);
    queue_.hold(true);
    transfers_.begin_step(2);
    transfers_.begin(buckets[0], Way::there);
    transfers_.carry_by(nullptr, {});
    EXPECT_THAT(another.carried, ::testing::SizeIs(GetParam() ? 2 : 3)) << "held, or begun at once";
  }
  EXPECT_THROW(transfers_.begin(buckets[0], Way::there), ContractError);
}

INSTANTIATE_TEST_SUITE_P(, TransfersTest, ::testing::Bool(), [](const auto& made) {
  return made.param ? "Beside" : "InTurn";
});

}  // namespace
}  // namespace trireme::reduce
