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

/// Records the transfers that ran on the stream.
class RecordingSender final : public TransferSender {
 public:
  void enqueue(BucketIndex bucket, Direction direction, device::Stream& stream) override {
    device::cpu::stream_of(stream).run([this, bucket, direction] {
      enqueued.push_back((direction == Direction::send ? "send " : "send_back ") +
                         std::to_string(at(bucket)));
    });
  }
  std::vector<std::string> enqueued;
};

class TransfersTest : public ::testing::TestWithParam<bool> {
 protected:
  TransfersTest() {
    transfers_.set_sender(&sender_, buckets);
    transfers_.begin_step(1);
  }

  std::unique_ptr<device::Device> device_ = device::make_cpu_device(1);
  std::unique_ptr<device::Stream> compute_ =
      device_->make_stream(device::StreamMode::inlined, "compute");
  RecordingSender sender_;
  CollectiveQueue queue_{*device_, GetParam(), 8};
  Transfers transfers_{*device_, *compute_, queue_, GetParam()};
};

TEST_P(TransfersTest, RunInTheOrderInWhichTheyBegin) {
  for (std::int64_t step = 1; step <= 3; ++step) {
    transfers_.begin_step(step);
    sender_.enqueued.clear();
    for (const BucketIndex bucket : buckets) transfers_.begin(bucket, Direction::send);
    transfers_.begin(buckets[0], Direction::send_back);
    transfers_.begin(buckets[1], Direction::send_back);
    transfers_.wait(buckets[1], Direction::send_back);  // waits may be in any order
    transfers_.wait(buckets[1], Direction::send);
    for (const Direction direction : {Direction::send, Direction::send_back})
      transfers_.wait(buckets[0], direction);
    EXPECT_THAT(sender_.enqueued, ElementsAre("send 4", "send 1", "send_back 4", "send_back 1"));
  }
}

TEST_P(TransfersTest, HaveTimesInTheirSteps) {
  for (const Direction direction : {Direction::send, Direction::send_back}) {
    transfers_.begin(buckets[1], direction);
    transfers_.wait(buckets[1], direction);
  }
  transfers_.begin_step(2);
  std::vector<TransferTimes> times;
  transfers_.take_times(2, times);
  EXPECT_THAT(times, IsEmpty());
  transfers_.take_times(1, times);
  ASSERT_EQ(times.size(), 2U);
  for (std::size_t i = 0; i < times.size(); ++i) {
    EXPECT_EQ(times[i].bucket, buckets[1]);
    EXPECT_EQ(times[i].direction, i == 0 ? Direction::send : Direction::send_back);
    EXPECT_GT(times[i].start, 0);
    EXPECT_LE(times[i].start, times[i].end);
    EXPECT_LE(times[i].end, times[i].wait_begin + times[i].waited);
    if (!GetParam()) {
      EXPECT_LE(times[i].wait_begin, times[i].start);
    }
  }
  EXPECT_LE(times[0].end, times[1].start);
}

TEST_P(TransfersTest, RefuseBucketsWithoutATransfer) {
  EXPECT_THROW(transfers_.wait(buckets[0], Direction::send), ContractError);
  transfers_.begin(buckets[0], Direction::send);
  EXPECT_THROW(transfers_.begin(buckets[0], Direction::send), ContractError);
  transfers_.wait(buckets[0], Direction::send);
  EXPECT_THROW(transfers_.begin(BucketIndex{2}, Direction::send), ContractError);
}

/// As after an exception between begin() and wait().
TEST_P(TransfersTest, EndBeforeTheirSenderDoes) {
  {
    RecordingSender another;
    transfers_.set_sender(&another, buckets);
    for (const BucketIndex bucket : buckets) transfers_.begin(bucket, Direction::send);
    transfers_.set_sender(nullptr, {});
    EXPECT_THAT(another.enqueued, ElementsAre("send 4", "send 1"));
    transfers_.set_sender(&another, buckets);
    queue_.hold(true);
    transfers_.begin_step(2);
    transfers_.begin(buckets[0], Direction::send);
    transfers_.set_sender(nullptr, {});
    EXPECT_THAT(another.enqueued, ::testing::SizeIs(GetParam() ? 2 : 3))
        << "held, or begun at once";
  }
  EXPECT_THROW(transfers_.begin(buckets[0], Direction::send), ContractError);
}

INSTANTIATE_TEST_SUITE_P(, TransfersTest, ::testing::Bool(), [](const auto& made) {
  return made.param ? "Overlapping" : "Inline";
});

}  // namespace
}  // namespace trireme::reduce
