// SPDX-License-Identifier: Apache-2.0
// The estimate of the usual wait for messages at a given pace. Time is computed, not measured.
#include <algorithm>

#include <gtest/gtest.h>

#include "comm/control/progress.hpp"

namespace trireme::comm {
namespace {

/// Waits like Progress: it spins for 60 us, and a sleep takes 50 us longer than requested.
class Waiter {
 public:
  /// Waits for a message that arrives after `us`. Returns whether it slept without spinning.
  bool wait(int us) {
    const int at_once_us = usual_.sleep_us();
    const int spun_us = at_once_us > 0 ? 0 : 60;
    int slept_us = 0, sleeps = 0;
    while (spun_us + slept_us < us) {
      slept_us += std::max(at_once_us, 20) + 50;
      ++sleeps;
    }
    usual_.ended(sleeps, slept_us);
    return at_once_us > 0;
  }
  /// How many of `messages` were waited for by sleeping without spinning.
  int slept_at_once(int messages, int us) {
    int count = 0;
    for (int i = 0; i < messages; ++i) count += wait(us) ? 1 : 0;
    return count;
  }
  [[nodiscard]] int sleep_us() const { return usual_.sleep_us(); }

 private:
  UsualWait usual_;
};

TEST(UsualWait, SpinsWhereMessagesComeFast) {
  for (const int us : {1, 10, 60, 100}) EXPECT_EQ(Waiter().slept_at_once(1000, us), 0) << us;
}

TEST(UsualWait, SleepsAtOnceWhereMessagesTakeLong) {
  for (const int us : {250, 500, 1000, 100'000}) {
    Waiter waiter;
    waiter.slept_at_once(6, us);
    EXPECT_EQ(waiter.slept_at_once(1000, us), 1000) << us;
    EXPECT_LE(waiter.sleep_us(), 300);
  }
}

TEST(UsualWait, DoesNotTakeAFewLongWaitsForASlowLink) {
  Waiter waiter;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(waiter.slept_at_once(3, 5000), 0);
    EXPECT_EQ(waiter.slept_at_once(8, 5), 0);
  }
}

TEST(UsualWait, SpinsAgainWhenMessagesComeFaster) {
  Waiter waiter;
  waiter.slept_at_once(100, 500);
  ASSERT_GT(waiter.sleep_us(), 0);
  EXPECT_LE(waiter.slept_at_once(1000, 5), 8);
  EXPECT_EQ(waiter.sleep_us(), 0);
}

}  // namespace
}  // namespace trireme::comm
