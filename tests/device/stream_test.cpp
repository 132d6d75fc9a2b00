// SPDX-License-Identifier: Apache-2.0
// Streams and events against the rules of device/device.hpp. No test depends on elapsed time: gates
// hold a stream until the test opens them. The test's time-out reports a hang.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.hpp"
#include "device/cpu/cpu_stream.hpp"
#include "device/device.hpp"

namespace trireme::device {
namespace {

using testing::HasSubstr;

/// Holds a stream until it is opened. The destructor opens it, so no stream waits for ever.
class Gate {
 public:
  ~Gate() { open(); }
  void open() {
    open_.store(true);
    open_.notify_all();
  }
  void hold(Stream& stream) {
    cpu::stream_of(stream).run([this] {
      entered_.store(true);
      entered_.notify_all();
      open_.wait(false);
    });
  }
  void wait_until_entered() { entered_.wait(false); }

 private:
  std::atomic<bool> open_{false};
  std::atomic<bool> entered_{false};
};

template <class F>
void run(Stream& stream, F callable) {
  cpu::stream_of(stream).run(callable);
}

class StreamTest : public testing::Test {
 protected:
  std::unique_ptr<Stream> make(const std::string& name = "test",
                               StreamMode mode = StreamMode::concurrent) {
    return device_->make_stream(mode, name);
  }
  std::unique_ptr<Device> device_ = make_cpu_device(1);
};

class BothModesTest : public StreamTest, public testing::WithParamInterface<StreamMode> {};
INSTANTIATE_TEST_SUITE_P(,
                         BothModesTest,
                         testing::Values(StreamMode::inlined, StreamMode::concurrent),
                         [](const auto& mode) {
                           return mode.param == StreamMode::inlined ? "Inline" : "Concurrent";
                         });

TEST_P(BothModesTest, RunsInOrderAndMoreThanTheRingHolds) {
  std::vector<int> seen;
  auto stream = make("order", GetParam());
  constexpr int count = 5000;
  for (int i = 0; i < count; ++i) run(*stream, [&seen, i] { seen.push_back(i); });
  stream->synchronize();
  std::vector<int> expected(count);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(seen, expected);
}

TEST_P(BothModesTest, AGraphRunsWhatWasCapturedEachTimeItIsLaunched) {
  std::vector<float> from(3, 1), to(3);
  int runs = 0;
  auto stream = make("graph", GetParam()), other = make("other", GetParam());
  stream->begin_capture();
  device_->copy(view_of(to.data(), 3), view_of(std::as_const(from).data(), 3), *stream);
  device_->fill_zero(view_of(to.data(), 1), *stream);
  run(*stream, [&runs] { ++runs; });
  const auto graph = stream->end_capture();
  stream->synchronize();
  EXPECT_EQ(runs, 0) << "a capture runs nothing";
  for (const float value : {2.0F, 3.0F}) {
    std::fill(from.begin(), from.end(), value);
    graph->launch(*stream);
    graph->launch(*stream);
    stream->synchronize();
    EXPECT_EQ(to, (std::vector<float>{0, value, value}));
  }
  graph->launch(*other);
  other->synchronize();
  EXPECT_EQ(runs, 5);
  run(*stream, [&runs] { ++runs; });
  stream->synchronize();
  EXPECT_EQ(runs, 6) << "after a capture the stream runs again";
}

TEST_P(BothModesTest, AStreamThatIsCapturedNeitherRecordsNorWaits) {
  auto stream = make("graph", GetParam());
  const auto event = device_->make_event();
  EXPECT_THROW((void)stream->end_capture(), ContractError);
  stream->begin_capture();
  EXPECT_THROW(stream->begin_capture(), ContractError);
  EXPECT_THROW(stream->record(*event), ContractError);
  EXPECT_THROW(stream->wait(*event), ContractError);
  EXPECT_THROW(stream->synchronize(), ContractError);
  const auto nothing = stream->end_capture();
  nothing->launch(*stream);
  stream->record(*event);
  event->wait();
}

TEST_P(BothModesTest, AFailureInAGraphComesOutWhereItsStreamIsWaitedFor) {
  auto stream = make("graph", GetParam());
  int later = 0;
  stream->begin_capture();
  run(*stream, [] { throw std::runtime_error("captured"); });
  run(*stream, [&later] { ++later; });
  const auto graph = stream->end_capture();
  EXPECT_THROW(
      {
        graph->launch(*stream);
        stream->synchronize();
      },
      std::runtime_error);
  EXPECT_EQ(later, 0);
}

TEST_P(BothModesTest, AnEventIsReachedAfterWhatWasBeforeIt) {
  int value = 0;
  auto stream = make("event", GetParam());
  auto event = device_->make_event();
  EXPECT_TRUE(event->reached()) << "an event never recorded counts as reached";
  event->wait();
  const double before = steady_seconds();
  run(*stream, [&value] { value = 1; });
  stream->record(*event);
  event->wait();
  EXPECT_EQ(value, 1);
  EXPECT_TRUE(event->reached());
  EXPECT_GE(event->seconds(), before);
  EXPECT_LE(event->seconds(), steady_seconds());
}

TEST_P(BothModesTest, CopiesAndFillsInStreamOrder) {
  std::vector<float> from(300), to(300, -1);
  std::iota(from.begin(), from.end(), 1.0F);
  auto stream = make("copy", GetParam());
  device_->copy(view_of(to.data(), 300), view_of(std::as_const(from).data(), 300), *stream);
  device_->fill_zero(view_of(to.data(), 300).slice(100, 50), *stream);
  device_->copy(View{}, ConstView{}, *stream);
  device_->fill_zero(View{}, *stream);
  stream->synchronize();
  for (std::size_t i = 0; i < 300; ++i) EXPECT_EQ(to[i], i >= 100 && i < 150 ? 0.0F : from[i]);
  EXPECT_THROW(
      device_->copy(view_of(to.data(), 2), view_of(std::as_const(from).data(), 3), *stream),
      ContractError);
}

TEST_P(BothModesTest, RefusesEventsOfAnotherDevice) {
  class Stranger final : public Event {
    [[nodiscard]] bool reached() const override { return true; }
    void wait() const override {}
    [[nodiscard]] double seconds() const override { return 0; }
  };
  Stranger stranger;
  auto stream = make("strict", GetParam());
  EXPECT_THROW(stream->record(stranger), ContractError);
  EXPECT_THROW(stream->wait(stranger), ContractError);
}

TEST_F(StreamTest, AWorkersParallelLoopsHaveTheDevicesThreads) {
  const auto device = make_cpu_device(3);
  const auto stream = device->make_stream(StreamMode::concurrent, "test");
  int threads = 0;
  run(*stream, [&threads] { threads = omp_get_max_threads(); });
  stream->synchronize();
  EXPECT_EQ(threads, 3);
}

/// Kernels before Linux 6.12 do not support time slices per thread and return 0.
TEST_F(StreamTest, AWorkerAsksForShortSlicesAndTheCallerKeepsItsOwn) {
#if defined(SYS_sched_getattr)
  struct Attributes {  // the kernel's struct
    std::uint32_t size, policy;
    std::uint64_t flags;
    std::int32_t nice;
    std::uint32_t priority;
    std::uint64_t runtime_ns, deadline_ns, period_ns;
  };
  const auto read = [] {
    Attributes mine{};
    return std::pair(syscall(SYS_sched_getattr, gettid(), &mine, sizeof mine, 0) == 0, mine);
  };
  const auto [known, caller] = read();
  if (!known || caller.runtime_ns == 0)
    GTEST_SKIP() << "this kernel has no time slices of threads";
  const auto device = make_cpu_device(1);
  const auto stream = device->make_stream(StreamMode::concurrent, "test");
  Attributes worker{};
  run(*stream, [&] { worker = read().second; });
  stream->synchronize();
  EXPECT_EQ(worker.runtime_ns, 100'000U);
  EXPECT_EQ(worker.nice, caller.nice);
  EXPECT_EQ(worker.policy, caller.policy);
  EXPECT_EQ(read().second.runtime_ns, caller.runtime_ns);
#else
  GTEST_SKIP() << "not Linux";
#endif
}

TEST_F(StreamTest, InlineWorkRunsOnTheCallersThread) {
  auto stream = make("inline", StreamMode::inlined);
  std::thread::id where;
  run(*stream, [&where] { where = std::this_thread::get_id(); });
  EXPECT_EQ(where, std::this_thread::get_id());
}

TEST_F(StreamTest, ConcurrentWorkRunsOnItsOwnThreadWhileTheHostGoesOn) {
  auto stream = make();
  Gate gate;
  std::thread::id where;
  auto event = device_->make_event();
  gate.hold(*stream);
  run(*stream, [&where] { where = std::this_thread::get_id(); });
  stream->record(*event);
  EXPECT_FALSE(event->reached());  // the host continues although the stream is held
  gate.open();
  event->wait();
  EXPECT_NE(where, std::this_thread::get_id());
  EXPECT_NE(where, std::thread::id());
}

TEST_F(StreamTest, AWaitHoldsTheOtherStreamBack) {
  int value = 0, seen = -1;
  auto first = make("first"), second = make("second");
  Gate gate;
  auto written = device_->make_event(), read = device_->make_event();
  gate.hold(*first);
  run(*first, [&value] { value = 42; });
  first->record(*written);
  second->wait(*written);
  run(*second, [&] { seen = value; });
  second->record(*read);
  EXPECT_FALSE(read->reached());
  gate.open();
  read->wait();
  EXPECT_EQ(seen, 42);
}

TEST_F(StreamTest, AnInlineStreamWaitsOnTheHost) {
  int value = 0;
  auto worker = make();
  auto host = make("host", StreamMode::inlined);
  auto written = device_->make_event();
  for (int round = 1; round <= 200; ++round) {
    run(*worker, [&value, round] { value = round; });
    worker->record(*written);
    host->wait(*written);
    ASSERT_EQ(value, round);
  }
}

TEST_F(StreamTest, AWaitRefersToTheLatestRecordBeforeIt) {
  std::vector<int> order;
  auto first = make("first"), second = make("second");
  Gate gate;
  auto event = device_->make_event(), done = device_->make_event();
  run(*first, [&order] { order.push_back(1); });
  first->record(*event);
  second->wait(*event);  // the first record, which the gate does not hold
  run(*second, [&order] { order.push_back(2); });
  second->record(*done);
  done->wait();
  gate.hold(*first);
  run(*first, [&order] { order.push_back(3); });
  first->record(*event);
  EXPECT_FALSE(event->reached()) << "the second record has not been reached";
  second->wait(*event);
  run(*second, [&order] { order.push_back(4); });
  gate.open();
  second->synchronize();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3, 4}));
}

TEST_F(StreamTest, AnEventMayBeDestroyedBeforeItsRecordIsReached) {
  int value = 0;
  auto first = make("first"), second = make("second");
  for (int round = 0; round < 50; ++round) {
    Gate gate;
    {
      auto event = device_->make_event();
      gate.hold(*first);
      run(*first, [&value] { ++value; });
      first->record(*event);
      second->wait(*event);
    }
    run(*second, [&value] { ++value; });
    gate.open();
    second->synchronize();
    ASSERT_EQ(value, 2 * (round + 1));
  }
}

TEST_F(StreamTest, AFullRingMakesTheHostWaitAndLosesNothing) {
  auto stream = make();
  Gate gate;
  std::atomic<int> ran{0}, queued{0};
  constexpr int count = 3000;
  gate.hold(*stream);
  gate.wait_until_entered();
  std::thread host([&] {
    for (int i = 0; i < count; ++i) {
      run(*stream, [&ran] { ++ran; });
      queued.store(i + 1);
      queued.notify_all();
    }
  });
  for (int seen = queued.load(); seen < 1024; seen = queued.load()) queued.wait(seen);
  EXPECT_EQ(ran.load(), 0);
  EXPECT_EQ(queued.load(), 1024) << "the ring holds 1024 tasks";
  gate.open();
  host.join();
  stream->synchronize();
  EXPECT_EQ(ran.load(), count);
}

TEST_F(StreamTest, TwoFullStreamsThatWaitForEachOtherDoNotLock) {
  auto first = make("first"), second = make("second");
  auto ping = device_->make_event(), pong = device_->make_event();
  std::uint64_t sum = 0;
  for (int i = 0; i < 2000; ++i) {
    run(*first, [&sum] { ++sum; });
    first->record(*ping);
    second->wait(*ping);
    run(*second, [&sum] { sum *= 3; });
    second->record(*pong);
    first->wait(*pong);
  }
  first->synchronize();
  std::uint64_t expected = 0;
  for (int i = 0; i < 2000; ++i) expected = (expected + 1) * 3;
  EXPECT_EQ(sum, expected);
}

TEST_F(StreamTest, TheDestructorRunsWhatIsQueued) {
  int ran = 0;
  {
    auto stream = make();
    for (int i = 0; i < 100; ++i) run(*stream, [&ran] { ++ran; });
  }
  EXPECT_EQ(ran, 100);
}

TEST_F(StreamTest, AFailureSkipsWhatFollowsAndComesOutWhereTheHostWaits) {
  bool skipped = true;
  auto stream = make();
  auto before = device_->make_event(), after = device_->make_event();
  stream->record(*before);
  run(*stream, [] { throw CommError("MPI", "MPI_Send", "gone", __FILE__, __LINE__); });
  run(*stream, [&skipped] { skipped = false; });
  stream->record(*after);
  EXPECT_THROW(after->wait(), CommError);
  EXPECT_TRUE(skipped);
  EXPECT_TRUE(after->reached());
  EXPECT_NO_THROW(before->wait());
  EXPECT_THROW(after->wait(), CommError) << "every waiter is told";
  EXPECT_THROW(stream->synchronize(), CommError);
  run(*stream, [&skipped] { skipped = false; });
  EXPECT_THROW(stream->synchronize(), CommError) << "the stream stays stopped";
  EXPECT_TRUE(skipped);
}

TEST_F(StreamTest, AFailureSpreadsToTheStreamsThatWait) {
  bool ran = false;
  auto first = make("first"), second = make("second"), third = make("third");
  auto host = make("host", StreamMode::inlined);
  auto a = device_->make_event(), b = device_->make_event();
  run(*first, [] { throw std::runtime_error("first of all"); });
  first->record(*a);
  second->wait(*a);
  second->record(*b);
  third->wait(*b);
  run(*third, [&ran] { ran = true; });
  try {
    third->synchronize();
    FAIL() << "the failure was lost";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "first of all");
  }
  EXPECT_FALSE(ran);
  EXPECT_THROW(host->wait(*b), std::runtime_error);
  EXPECT_THROW(first->synchronize(), std::runtime_error);
}

TEST_F(StreamTest, TheFirstFailureIsTheOneReported) {
  auto first = make("first"), second = make("second");
  auto event = device_->make_event();
  run(*first, [] { throw std::runtime_error("theirs"); });
  first->record(*event);
  run(*second, [] { throw std::logic_error("mine"); });
  second->wait(*event);
  EXPECT_THROW(second->synchronize(), std::logic_error);
  EXPECT_THROW(first->synchronize(), std::runtime_error);
}

TEST_F(StreamTest, AFullRingAfterAFailureStillDrains) {
  auto stream = make();
  Gate gate;
  std::atomic<int> ran{0};
  gate.hold(*stream);
  run(*stream, [] { throw std::runtime_error("early"); });
  std::thread opener([&] { gate.open(); });
  for (int i = 0; i < 3000; ++i) run(*stream, [&ran] { ++ran; });
  opener.join();
  EXPECT_THROW(stream->synchronize(), std::runtime_error);
  EXPECT_EQ(ran.load(), 0);
}

TEST_F(StreamTest, ManyThreadsMayWaitForOneFailure) {
  auto stream = make();
  Gate gate;
  auto event = device_->make_event();
  gate.hold(*stream);
  run(*stream, [] { throw std::runtime_error("for all"); });
  stream->record(*event);
  std::atomic<int> told{0};
  std::vector<std::thread> waiters;
  for (int i = 0; i < 4; ++i)
    waiters.emplace_back([&] {
      try {
        event->wait();
      } catch (const std::runtime_error&) {
        ++told;
      }
    });
  gate.open();
  for (auto& waiter : waiters) waiter.join();
  EXPECT_EQ(told.load(), 4);
}

TEST_F(StreamTest, AFailureThatWasNotCollectedIsPrinted) {
  testing::internal::CaptureStderr();
  {
    run(*make("mute"), [] { throw std::runtime_error("unheard"); });
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("stream mute failed"));
  testing::internal::CaptureStderr();
  {
    auto stream = make("heard");
    run(*stream, [] { throw std::runtime_error("heard"); });
    EXPECT_THROW(stream->synchronize(), std::runtime_error);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(StreamTest, AFailingInlineTaskThrowsInItsCaller) {
  auto stream = make("inline", StreamMode::inlined);
  auto event = device_->make_event();
  EXPECT_THROW(run(*stream, [] { throw std::runtime_error("now"); }), std::runtime_error);
  stream->record(*event);
  EXPECT_NO_THROW(event->wait());
}

}  // namespace
}  // namespace trireme::device
