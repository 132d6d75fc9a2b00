// SPDX-License-Identifier: Apache-2.0
// Pieces of different sizes are sent between every pair of ranks, and back.
#include "comm/collective/round_trip.hpp"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.hpp"

#include "comm/communicator.hpp"
#include "comm/control/mpi_world.hpp"
#include "comm/trip.hpp"

namespace trireme::comm {
namespace {

class RoundTripTest : public ::testing::TestWithParam<device::StreamMode> {
 protected:
  RoundTripTest() {
    for (int peer = 0; peer < world_.size(); ++peer) {
      if (peer == world_.rank())
        continue;
      for (const std::int64_t size : sizes(world_.rank(), peer)) add(peer, size, left_, leaving_);
      for (const std::int64_t size : sizes(peer, world_.rank())) add(peer, size, here_, arriving_);
    }
  }
  static void add(int peer,
                  std::int64_t size,
                  std::vector<std::unique_ptr<std::vector<float>>>& memory,
                  std::vector<Passenger>& list) {
    memory.push_back(std::make_unique<std::vector<float>>(static_cast<std::size_t>(size)));
    list.push_back({peer, view_of(memory.back()->data(), size)});
  }
  /// Calls body(value of the element, expected value) for all elements of one list.
  template <class Body>
  void for_all(std::vector<Passenger>& list, bool to_peer, int round, const Body& body) {
    int last = -1;
    std::size_t piece = 0;
    for (const Passenger& one : list) {
      piece = one.peer == last ? piece + 1 : 0;
      last = one.peer;
      const int from = to_peer ? world_.rank() : one.peer;
      const int to = to_peer ? one.peer : world_.rank();
      auto* values = one.at.as<float>();
      for (std::int64_t i = 0; i < one.at.elements; ++i)
        body(values[i], value(from, to, piece, i, round));
    }
  }

  MpiWorld world_;
  std::vector<std::unique_ptr<std::vector<float>>> left_, here_;
  std::vector<Passenger> leaving_, arriving_;
  std::unique_ptr<device::Device> device_ = device::make_cpu_device(1);
  std::unique_ptr<device::Stream> stream_ = device_->make_stream(GetParam(), "comm");
  std::unique_ptr<Communicator> communicator_ =
      make_communicator(Transport::automatic, Reduction::ordered, world_, *device_);
};

TEST_P(RoundTripTest, EveryPieceArrivesAndComesBack) {
  const auto trip = make_round_trip(world_, *communicator_, leaving_, arriving_);
  const auto set = [](float& at, float to) { at = to; };
  const auto same = [](float at, float expected) { ASSERT_EQ(at, expected); };
  for (int round = 0; round < 2; ++round) {
    for_all(leaving_, true, round, set);
    trip->go(*stream_);
    stream_->synchronize();
    for_all(arriving_, false, round, same);
    for_all(leaving_, true, round, same);
    // Other values are sent back.
    for_all(arriving_, false, round + 2, set);
    trip->come_back(*stream_);
    stream_->synchronize();
    for_all(leaving_, true, round + 2, same);
  }
  world_.barrier();
}

INSTANTIATE_TEST_SUITE_P(,
                         RoundTripTest,
                         ::testing::Values(device::StreamMode::inlined,
                                           device::StreamMode::concurrent));

TEST(RoundTrip, OneRankSendsNothing) {
  const auto world = make_self_world();
  const auto device = device::make_cpu_device(1);
  const auto stream = device->make_stream(device::StreamMode::inlined, "comm");
  const auto communicator = make_communicator(Transport::self, Reduction::ordered, *world, *device);
  const auto trip = make_round_trip(*world, *communicator, {}, {});
  trip->go(*stream);
  trip->come_back(*stream);
  float one = 0;
  EXPECT_THROW(make_round_trip(*world, *communicator, {{0, view_of(&one, 1)}}, {}), ContractError);
}

}  // namespace
}  // namespace trireme::comm
