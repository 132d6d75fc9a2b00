// SPDX-License-Identifier: Apache-2.0
#include "base/stage_progress.hpp"

#include <chrono>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

class StageProgressTest : public testing::Test {
 protected:
  /// The output `after` this time from the beginning.
  std::string told(const std::string& what, double done, double total, milliseconds after) {
    testing::internal::CaptureStdout();
    progress_.report(what, done, total, begin_ + after);
    return testing::internal::GetCapturedStdout();
  }

  Log log_{true, "rank 0"};
  StageProgress progress_{log_};
  const StageProgress::Clock::time_point begin_{};
};

TEST_F(StageProgressTest, ReportsAtMostEveryFiveSecondsWithTheTimeThatIsLeft) {
  EXPECT_EQ(told("counting", 0, 400, seconds(0)), "");
  EXPECT_EQ(told("counting", 90, 400, milliseconds(4999)), "");
  EXPECT_THAT(told("counting", 100, 400, seconds(5)), HasSubstr("counting: 25.0 %, 15.0 s left\n"));
  EXPECT_EQ(told("counting", 150, 400, milliseconds(9999)), "");
  EXPECT_THAT(told("counting", 200, 400, seconds(10)),
              HasSubstr("counting: 50.0 %, 10.0 s left\n"));
}

TEST_F(StageProgressTest, AnotherStageBeginsAnew) {
  EXPECT_EQ(told("counting", 0, 400, seconds(0)), "");
  EXPECT_EQ(told("merging", 0, 10, seconds(7)), "");
  EXPECT_EQ(told("merging", 4, 10, seconds(11)), "");
  EXPECT_THAT(told("merging", 5, 10, seconds(13)), HasSubstr("merging: 50.0 %, 6.0 s left\n"));
}

TEST_F(StageProgressTest, WhatWasDoneBeforeIsNoSpeed) {
  EXPECT_EQ(told("counting", 300, 400, seconds(0)), "");
  EXPECT_EQ(told("counting", 300, 400, seconds(6)), "");  // not enough data for an estimate
  EXPECT_THAT(told("counting", 320, 400, seconds(10)),
              HasSubstr("counting: 80.0 %, 40.0 s left\n"));
}

TEST_F(StageProgressTest, ReportsNothingThatIsDone) {
  EXPECT_EQ(told("counting", 0, 400, seconds(0)), "");
  EXPECT_EQ(told("counting", 400, 400, seconds(60)), "");
}

}  // namespace
}  // namespace trireme
