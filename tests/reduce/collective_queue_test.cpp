// SPDX-License-Identifier: Apache-2.0
#include "reduce/collective_queue.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::reduce {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Records which collectives begin.
class RecordingSource final : public CollectiveQueue::Source {
 public:
  RecordingSource(std::vector<std::string>& begun, std::string name, bool overtakes = false)
      : begun_(begun), name_(std::move(name)), overtakes_(overtakes) {}
  [[nodiscard]] bool overtakes() const override { return overtakes_; }
  void start(BucketIndex bucket) override { begun_.push_back(name_ + std::to_string(at(bucket))); }

 private:
  std::vector<std::string>& begun_;
  std::string name_;
  bool overtakes_;
};

class QueueTest : public ::testing::Test {
 protected:
  void push(RecordingSource& source, int bucket) {
    queue_.push(source, static_cast<BucketIndex>(bucket));
  }
  void about_to_wait(RecordingSource& source, int bucket) {
    queue_.about_to_wait(source, static_cast<BucketIndex>(bucket));
  }

  std::unique_ptr<device::Device> device_ = device::make_cpu_device(1);
  CollectiveQueue queue_{*device_, false, 6};
  std::vector<std::string> begun_;
  RecordingSource gather_{begun_, "gather "}, reduce_{begun_, "reduce "};
  RecordingSource send_{begun_, "send ", true}, send_back_{begun_, "send_back ", true};
};

TEST_F(QueueTest, BeginsACollectiveAtOnceWhenNoneAreHeld) {
  push(reduce_, 0);
  push(gather_, 2);
  EXPECT_THAT(begun_, ElementsAre("reduce 0", "gather 2"));
  about_to_wait(gather_, 2);
  EXPECT_THAT(begun_, ::testing::SizeIs(2));
}

TEST_F(QueueTest, BeginsHeldCollectivesUpToTheOneThatIsWaitedFor) {
  queue_.hold(true);
  for (const int bucket : {0, 1, 2}) push(reduce_, bucket);
  push(gather_, 1);
  EXPECT_THAT(begun_, IsEmpty());
  about_to_wait(reduce_, 1);
  EXPECT_THAT(begun_, ElementsAre("reduce 0", "reduce 1"));
  about_to_wait(reduce_, 0);  // it has begun
  EXPECT_THAT(begun_, ::testing::SizeIs(2));
  about_to_wait(gather_, 1);  // the gather, not the reduction of bucket 1
  EXPECT_THAT(begun_, ElementsAre("reduce 0", "reduce 1", "reduce 2", "gather 1"));
}

/// Collectives of other sources begin together with all that were held before them.
TEST_F(QueueTest, SourcesThatOvertakeBeginWithoutTheOthers) {
  queue_.hold(true);
  push(gather_, 3);
  push(send_, 0);
  push(gather_, 2);
  push(send_back_, 0);
  push(send_back_, 1);
  about_to_wait(send_back_, 0);
  EXPECT_THAT(begun_, ElementsAre("send 0", "send_back 0"));
  about_to_wait(send_, 0);  // it has begun
  about_to_wait(gather_, 2);
  EXPECT_THAT(begun_, ElementsAre("send 0", "send_back 0", "gather 3", "gather 2"));
  push(gather_, 1);
  about_to_wait(gather_, 1);
  EXPECT_THAT(begun_, ElementsAre("send 0", "send_back 0", "gather 3", "gather 2", "send_back 1",
                                  "gather 1"));
}

TEST_F(QueueTest, ForgottenCollectivesNeverBegin) {
  queue_.hold(true);
  push(send_, 0);
  push(gather_, 0);
  queue_.forget(send_);
  about_to_wait(send_, 0);
  EXPECT_THAT(begun_, IsEmpty());
  about_to_wait(gather_, 0);
  EXPECT_THAT(begun_, ElementsAre("gather 0"));
}

TEST_F(QueueTest, KeepsTheOrderWhenHoldingEnds) {
  queue_.hold(true);
  push(reduce_, 0);
  queue_.hold(false);
  EXPECT_THAT(begun_, IsEmpty());
  about_to_wait(reduce_, 0);
  push(reduce_, 1);
  EXPECT_THAT(begun_, ElementsAre("reduce 0", "reduce 1"));
}

}  // namespace
}  // namespace trireme::reduce
