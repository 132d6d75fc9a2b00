// SPDX-License-Identifier: Apache-2.0
#include "base/threads.hpp"

#include <array>
#include <future>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace trireme {
namespace {

/// The output of `action` in a process whose user may not start another thread.
template <class Action>
std::string without_threads(const Action& action) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit none{1, 1};
    std::string text = "threads could not be limited";
    constexpr int nobody = 65534;
    if (::setrlimit(RLIMIT_NPROC, &none) == 0 && (::geteuid() != 0 || ::setuid(nobody) == 0))
      try {
        action();
        text = "nothing was refused";
      } catch (const std::exception& problem) {
        text = problem.what();
      }
    [[maybe_unused]] const auto written = ::write(ends[1], text.data(), text.size());
    ::_exit(0);
  }
  ::close(ends[1]);
  std::array<char, 4096> room{};
  const auto got = ::read(ends[0], room.data(), room.size());
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return {room.data(), got > 0 ? static_cast<std::size_t>(got) : 0};
}

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
  EXPECT_THAT(without_threads([] { start_thread("some-name", [] {}).join(); }),
              testing::AllOf(testing::HasSubstr("'some-name'"),
                             testing::HasSubstr("ulimit -u allows 1 threads")));
}

TEST(Threads, AreTriedBeforeOpenMpNeedsThem) {
  EXPECT_NO_THROW(HeldThreads(4));
  EXPECT_THAT(without_threads([] { const HeldThreads two(2); }), testing::HasSubstr("ulimit -u"));
}

}  // namespace
}  // namespace trireme
