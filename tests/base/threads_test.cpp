// SPDX-License-Identifier: Apache-2.0
#include "base/threads.hpp"

#include <array>
#include <future>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/child_process.hpp"

namespace trireme {
namespace {

TEST(Threads, AreStartedUnderTheirName) {
  std::array<char, 16> name{};
  start_thread("some-name", [&] {
    std::array<char, 16> own{};
    while (own[0] != 's') pthread_getname_np(pthread_self(), own.data(), own.size());
    name = own;
  }).join();
  EXPECT_STREQ(name.data(), "some-name");
}

TEST(Threads, SleepUntilTheyAreStopped) {
  std::promise<bool> slept;
  bool stopped = false;
  {
    const auto thread = start_thread<std::jthread>("sleeps", [&](const std::stop_token& stop) {
      slept.set_value(sleep_unless_stopped(stop, std::chrono::milliseconds(1)));
      stopped = !sleep_unless_stopped(stop, std::chrono::hours(1));
    });
    EXPECT_TRUE(slept.get_future().get());
  }
  EXPECT_TRUE(stopped);
}

TEST(Threads, ThatAreRefusedNameTheLimit) {
  const auto names_the_limit = testing::AllOf(testing::HasSubstr("'some-name'"),
                                              testing::HasSubstr("ulimit -u allows 1 threads"));
  EXPECT_THAT(test::without_threads([] { start_thread("some-name", [] {}).join(); }),
              names_the_limit);
  EXPECT_THAT(test::without_threads([] { start_async("some-name", [] {}).get(); }),
              names_the_limit);
}

TEST(Threads, AreTriedBeforeOpenMpNeedsThem) {
  EXPECT_NO_THROW(HeldThreads(4));
  EXPECT_THAT(test::without_threads([] { const HeldThreads two(2); }),
              testing::HasSubstr("ulimit -u"));
}

}  // namespace
}  // namespace trireme
