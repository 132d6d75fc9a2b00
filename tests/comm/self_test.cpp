// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/communicator.hpp"

namespace trireme::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A world that only reports a larger size, for choices that need no communication.
class ClaimedWorld final : public World {
 public:
  explicit ClaimedWorld(int size) : size_(size) {}
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] int local_rank() const override { return 0; }
  [[nodiscard]] int local_size() const override { return size_; }
  [[nodiscard]] const std::string& host() const override { return host_; }
  void barrier() override {}
  void sum(std::span<std::int64_t> /*values*/) override {}
  void max(std::span<std::int64_t> /*values*/) override {}
  std::vector<double> gather_all(std::span<const double> /*values*/) override { return {}; }
  std::vector<std::string> gather_all(const std::string& /*text*/) override { return {}; }
  std::string broadcast(std::string bytes, int /*root*/) override { return bytes; }
  [[noreturn]] void abort(ExitCode code) noexcept override { std::_Exit(static_cast<int>(code)); }

 private:
  int size_;
  std::string host_ = "nowhere";
};

TEST(SelfWorld, IsACompleteWorldOfOne) {
  const auto world = make_self_world();
  EXPECT_EQ(world->rank(), 0);
  EXPECT_EQ(world->size(), 1);
  EXPECT_EQ(world->local_rank(), 0);
  EXPECT_EQ(world->local_size(), 1);
  EXPECT_FALSE(world->host().empty());
  world->barrier();
  std::array<std::int64_t, 2> values{3, -4};
  world->sum(values);
  world->max(values);
  EXPECT_THAT(values, ElementsAre(3, -4));
  EXPECT_THAT(world->gather_all(std::array{1.5, 2.5}), ElementsAre(1.5, 2.5));
  EXPECT_THAT(world->gather_all(std::string("a\0b", 3)), ElementsAre(std::string("a\0b", 3)));
  EXPECT_EQ(world->broadcast("deck", 0), "deck");
  EXPECT_THROW(static_cast<void>(world->broadcast("deck", 1)), ContractError);
}

TEST(SelfWorld, AbortEndsTheProcessWithTheCode) {
  EXPECT_EXIT(make_self_world()->abort(ExitCode::environment), ::testing::ExitedWithCode(3), "");
}

TEST(SelfCommunicator, DoesNotChangeTheBucket) {
  const auto device = device::make_cpu_device(1);
  const auto world = make_self_world();
  for (const auto reduction : {Reduction::sum, Reduction::ordered, Reduction::tree})
    for (const auto mode : {device::StreamMode::inlined, device::StreamMode::concurrent}) {
      const auto stream = device->make_stream(mode, "comm");
      const auto communicator = make_communicator(Transport::automatic, reduction, *world, *device);
      EXPECT_EQ(communicator->name(), "self");
      EXPECT_EQ(communicator->rank(), 0);
      EXPECT_EQ(communicator->size(), 1);
      const auto buffer = communicator->allocate(5 * sizeof(float), "gradients");
      const View full = buffer.view(DType::f32);
      for (int i = 0; i < 5; ++i) full.as<float>()[i] = static_cast<float>(i);
      const auto shards = communicator->shards(full);
      EXPECT_EQ(shards->full.data, full.data);
      EXPECT_EQ(shards->own.data, full.data);
      EXPECT_EQ(shards->own.elements, 5);
      EXPECT_EQ(shards->of(0).data, full.data);
      EXPECT_EQ(shards->of(0).elements, full.elements);
      communicator->reduce_scatter(*shards, BucketIndex{0}, *stream);
      communicator->all_gather(*shards, BucketIndex{0}, *stream);
      communicator->all_reduce(*shards, BucketIndex{0}, *stream);
      stream->synchronize();
      for (int i = 0; i < 5; ++i) EXPECT_EQ(full.as<float>()[i], static_cast<float>(i));
    }
}

TEST(SelfCommunicator, RefusesBucketsThatNoTransportSupports) {
  const auto device = device::make_cpu_device(1);
  const auto world = make_self_world();
  const auto communicator = make_communicator(Transport::self, Reduction::sum, *world, *device);
  const auto buffer = communicator->allocate(64, "integers");
  EXPECT_THROW(static_cast<void>(communicator->shards(buffer.view(DType::i32))), ContractError);
}

TEST(MakeCommunicator, SelfWithTwoRanksIsAUserError) {
  const auto device = device::make_cpu_device(1);
  ClaimedWorld world(2);
  try {
    const auto made = make_communicator(Transport::self, Reduction::sum, world, *device);
    FAIL() << "made " << made->name();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("self supports one rank only, but this run has 2"));
  }
}

TEST(MakeCommunicator, MpiTransportWithoutMpiIsAUserError) {
  const auto device = device::make_cpu_device(1);
  const auto world = make_self_world();
  EXPECT_THROW(
      static_cast<void>(make_communicator(Transport::mpi, Reduction::sum, *world, *device)),
      UserError);
}

}  // namespace
}  // namespace trireme::comm
