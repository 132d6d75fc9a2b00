// SPDX-License-Identifier: Apache-2.0
// A collective that a rank does not enter ends with an error that names the collective and the
// rank. A collective in which a rank is still working does not fail.
// tests/integration/watchdog_test.py stops processes to test ranks that do not answer at all.
//
// These tests do not depend on the speed of the ranks: the short deadline is set only after all
// ranks have reached the required place.
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/communicator.hpp"
#include "comm/control/mpi_world.hpp"
#include "comm/control/together.hpp"

namespace trireme::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double deadline_s = 0.2;
constexpr double long_deadline_s = 600;

/// Two worlds of the same ranks: `tested_` fails, and `talking_` exchanges what the test needs.
class Deadline : public ::testing::Test {
 protected:
  [[nodiscard]] int late() const { return tested_->size() - 1; }
  /// "rank 2 on host".
  [[nodiscard]] std::string name_of(int rank) {
    const auto hosts = talking_->gather_all(talking_->host());
    return "rank " + std::to_string(rank) + " on " + hosts[static_cast<std::size_t>(rank)];
  }
  /// The message of the error that the action throws on each rank; "" if none. The deadline of
  /// `world` becomes short when every rank is inside a collective of the action or has finished the
  /// action.
  std::vector<std::string> said(MpiWorld& world, const std::function<void()>& action) {
    const std::int64_t before = world.watchdog().num_entered();
    std::atomic<bool> over{false};
    std::thread herald([&] {
      while (!over && world.watchdog().num_entered() == before) pause();
      talking_->barrier();
      world.set_deadline(deadline_s);
    });
    const std::string words = thrown_by(action);
    over = true;
    herald.join();
    return talking_->gather_all(words);
  }
  std::vector<std::string> said(const std::function<void()>& action) {
    return said(*tested_, action);
  }
  static std::string thrown_by(const std::function<void()>& action) {
    try {
      action();
    } catch (const CommError& error) {
      return error.what();
    }
    return {};
  }
  /// Between two polls.
  static void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

  std::unique_ptr<MpiWorld> tested_ = std::make_unique<MpiWorld>();
  std::unique_ptr<World> talking_ = make_mpi_world();
};

class BucketDeadline : public Deadline, public ::testing::WithParamInterface<Transport> {
 protected:
  void SetUp() override {
    communicator_ = make_communicator(GetParam(), Reduction::ordered, *tested_, *device_,
                                      {.chunk_bytes = 4096});
    buffer_ = communicator_->allocate(
        static_cast<std::size_t>(64 * tested_->size()) * sizeof(float), "test bucket");
    shards_ = communicator_->shards(buffer_.view(DType::f32));
  }
  void reduce() {
    communicator_->reduce_scatter(*shards_, BucketIndex{7}, *stream_);
    stream_->synchronize();
  }

  std::unique_ptr<device::Device> device_ = device::make_cpu_device(1);
  std::unique_ptr<device::Stream> stream_ =
      device_->make_stream(device::StreamMode::concurrent, "comm");
  std::unique_ptr<Communicator> communicator_;
  device::Buffer buffer_;
  std::unique_ptr<Shards> shards_;
};

/// The ranks of other parts do not take part in this collective.
TEST_F(Deadline, InAPartWithItsOwnLanesNamesOnlyItsRanks) {
  const int ranks = tested_->size();
  if (ranks < 3)
    return;
  const bool first = tested_->rank() == 0;
  MpiWorld part(*tested_, first ? 0 : 1, true);
  const auto all = said(part, [&] {
    if (!first && part.rank() != part.size() - 1)
      part.barrier();
  });
  for (int r = 1; r < late(); ++r)
    EXPECT_THAT(all[static_cast<std::size_t>(r)],
                AllOf(HasSubstr("rank " + std::to_string(late())), Not(HasSubstr("rank 0"))));
}

TEST_P(BucketDeadline, NamesTheBucketAndTheRankThatNeverArrived) {
  if (tested_->size() == 1)
    return;  // no other rank can be late
  const auto all = said([&] {
    if (tested_->rank() != late())
      reduce();
  });
  const std::string name = name_of(late());
  for (int r = 0; r < late(); ++r)
    EXPECT_THAT(all[static_cast<std::size_t>(r)],
                AllOf(HasSubstr("reduce_scatter of bucket 7"),
                      HasSubstr(name + " has not entered it and is in no collective"),
                      Not(HasSubstr("rank 0"))))
        << "on rank " << r;
}

TEST_P(BucketDeadline, NamesTheCollectiveInWhichALateRankWaits) {
  if (tested_->size() == 1)
    return;
  std::array<std::int64_t, 1> value{1};
  const auto all = said([&] {
    if (tested_->rank() != late())
      reduce();
    else
      tested_->sum(value);
  });
  const std::string first = name_of(0), last = name_of(late());
  for (int r = 0; r < late(); ++r)
    EXPECT_THAT(all[static_cast<std::size_t>(r)],
                AllOf(HasSubstr("reduce_scatter of bucket 7 failed"), HasSubstr("no progress for"),
                      HasSubstr(last + " is still in a sum over the ranks")))
        << "on rank " << r;
  EXPECT_THAT(all[static_cast<std::size_t>(late())],
              AllOf(HasSubstr("a sum over the ranks failed"),
                    HasSubstr(first + " is still in reduce_scatter of bucket 7")));
}

/// Whether the page at `at` is mapped.
bool is_mapped(std::byte* at) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  unsigned char resident = 0;
  return mincore(at - reinterpret_cast<std::uintptr_t>(at) % page, page, &resident) == 0;
}

// MPI may still write a late peer's data into them.
TEST_P(BucketDeadline, BucketsStayMappedAfterACollectiveHasFailed) {
  if (tested_->size() == 1 || GetParam() != Transport::mpi)
    return;
  said([&] {
    if (tested_->rank() != late())
      reduce();
  });
  std::byte* const at = buffer_.data();
  ASSERT_TRUE(is_mapped(at));
  shards_.reset();
  buffer_ = {};
  communicator_.reset();
  if (tested_->rank() != late()) {  // the late rank, for which no collective failed
    EXPECT_TRUE(is_mapped(at));
  }
}

INSTANTIATE_TEST_SUITE_P(,
                         BucketDeadline,
                         ::testing::Values(Transport::mpi,
                                           Transport::shared_memory,
                                           Transport::hierarchical),
                         [](const auto& tested) { return std::string(word(tested.param)); });

TEST_F(Deadline, AppliesToEveryMemberOfTheWorld) {
  if (tested_->size() == 1)
    return;
  struct Member {
    const char* name;
    std::function<void(World&)> call;
  };
  std::array<std::int64_t, 2> values{1, 2};
  const std::vector<Member> members{
      {"a barrier", [](World& world) { world.barrier(); }},
      {"a sum over the ranks", [&](World& world) { world.sum(values); }},
      {"a maximum over the ranks", [&](World& world) { world.max(values); }},
      {"a gather of numbers", [](World& world) { world.gather_all(std::array{1.0}); }},
      {"a gather of texts", [](World& world) { world.gather_all(std::string("text")); }},
      {"a maximum over the ranks", [](World& world) { together(world, [] {}); }},
      // Every rank needs the last rank's bytes.
      {"a broadcast", [this](World& world) { world.broadcast("bytes", late()); }}};
  const std::string name = name_of(late());
  std::vector<std::unique_ptr<MpiWorld>> broken;
  for (const Member& member : members) {
    MpiWorld& world = *broken.emplace_back(std::make_unique<MpiWorld>());
    const auto all = said(world, [&] {
      if (world.rank() != late())
        member.call(world);
    });
    EXPECT_THAT(all[0], AllOf(HasSubstr(std::string(member.name)),
                              HasSubstr(name + " has not entered it and is in no collective")));
  }
}

TEST_F(Deadline, DoesNotEndWhileARankIsAtWork) {
  const std::int64_t before = tested_->watchdog().num_entered();
  const std::string words = thrown_by([&] {
    if (tested_->rank() == 0) {
      on_first_rank(*tested_, [&] {
        talking_->barrier();  // rank 0 is at work now, so the deadline may become short
        talking_->barrier();  // the others have waited longer than the deadline
      });
      return;
    }
    talking_->barrier();
    tested_->set_deadline(deadline_s);
    const std::jthread herald([&] {
      while (tested_->watchdog().num_entered() == before) pause();
      std::this_thread::sleep_for(std::chrono::duration<double>(3 * deadline_s));
      tested_->set_deadline(long_deadline_s);
      talking_->barrier();
    });
    on_first_rank(*tested_, [] {});
  });
  for (const std::string& one : talking_->gather_all(words)) EXPECT_EQ(one, "");
}

// A rank that has finished its work but does not enter the collective is late.
TEST_F(Deadline, AppliesToARankAfterItsWork) {
  if (tested_->size() == 1)
    return;
  together(*tested_, [] {});
  const auto all = said([&] {
    if (tested_->rank() != late())
      tested_->barrier();
  });
  EXPECT_THAT(all[0], HasSubstr("has not entered it"));
}

// After the first lane of a rank has failed, its other lanes fail without querying the ranks.
TEST_F(Deadline, FailsAllLanesOnceOneHasFailed) {
  if (tested_->size() == 1)
    return;
  const auto all = said([&] {
    if (tested_->rank() == late())
      return;
    EXPECT_THROW(tested_->barrier(), CommError);
    tested_->gather_all("x");
  });
  EXPECT_THAT(all[0], HasSubstr("a barrier"));
}

}  // namespace
}  // namespace trireme::comm
