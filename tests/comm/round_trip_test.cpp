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
      for (const std::size_t group : {outer, inner}) {
        for (const std::int64_t size : sizes(world_.rank(), peer))
          add(peer, size, groups_[group].leaving);
        for (const std::int64_t size : sizes(peer, world_.rank()))
          add(peer, size, groups_[group].arriving);
      }
    }
  }
  void add(int peer, std::int64_t size, std::vector<Passenger>& list) {
    memory_.push_back(std::make_unique<std::vector<float>>(static_cast<std::size_t>(size)));
    list.push_back({peer, view_of(memory_.back()->data(), size)});
  }
  /// Calls body(value of the element, expected value) for all elements of one list.
  template <class Body>
  void for_all(std::vector<Passenger>& list, bool to_peer, int round, const Body& body) {
    int before = -1;
    std::size_t piece = 0;
    for (const Passenger& one : list) {
      piece = one.peer == before ? piece + 1 : 0;
      before = one.peer;
      const int from = to_peer ? world_.rank() : one.peer;
      const int to = to_peer ? one.peer : world_.rank();
      auto* values = one.at.as<float>();
      for (std::int64_t i = 0; i < one.at.elements; ++i)
        body(values[i], value(from, to, piece, i, round));
    }
  }

  /// The group in between is empty.
  static constexpr std::size_t outer = 0, empty = 1, inner = 2;

  MpiWorld world_;
  std::vector<std::unique_ptr<std::vector<float>>> memory_;
  std::vector<Passengers> groups_ = std::vector<Passengers>(3);
  std::unique_ptr<device::Device> device_ = device::make_cpu_device(1);
  std::unique_ptr<device::Stream> stream_ = device_->make_stream(GetParam(), "comm");
  std::unique_ptr<Communicator> communicator_ =
      make_communicator(Transport::automatic, Reduction::ordered, world_, *device_);
};

TEST_P(RoundTripTest, EveryPieceArrivesAndComesBack) {
  const auto trip = make_round_trip(world_, *communicator_, groups_);
  const auto set = [](float& at, float to) { at = to; };
  const auto same = [](float at, float expected) { ASSERT_EQ(at, expected); };
  for (int round = 0; round < 2; ++round) {
    auto& [leaving, arriving] = groups_[round == 0 ? outer : inner];
    for_all(leaving, true, round, set);
    trip->go(round == 0 ? outer : inner, *stream_);
    stream_->synchronize();
    for_all(arriving, false, round, same);
    for_all(leaving, true, round, same);
    // Other values are sent back.
    for_all(arriving, false, round + 2, set);
    trip->come_back(round == 0 ? outer : inner, *stream_);
    stream_->synchronize();
    for_all(leaving, true, round + 2, same);
  }
  world_.barrier();
}

/// A group comes back while another is away, and neither touches the other's pieces.
TEST_P(RoundTripTest, GroupsTravelBetweenOneAnother) {
  const auto trip = make_round_trip(world_, *communicator_, groups_);
  const auto set = [](float& at, float to) { at = to; };
  const auto same = [](float at, float expected) { ASSERT_EQ(at, expected); };
  for_all(groups_[outer].leaving, true, 0, set);
  for_all(groups_[inner].leaving, true, 1, set);
  for (const std::size_t group : {outer, empty, inner}) trip->go(group, *stream_);
  stream_->synchronize();
  for_all(groups_[outer].arriving, false, 0, same);
  for_all(groups_[inner].arriving, false, 1, same);
  for_all(groups_[outer].arriving, false, 2, set);
  trip->come_back(empty, *stream_);
  trip->come_back(outer, *stream_);
  stream_->synchronize();
  for_all(groups_[outer].leaving, true, 2, same);
  for_all(groups_[inner].leaving, true, 1, same);
  for_all(groups_[inner].arriving, false, 3, set);
  trip->come_back(inner, *stream_);
  stream_->synchronize();
  for_all(groups_[inner].leaving, true, 3, same);
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
  const auto trip = make_round_trip(*world, *communicator, {{}});
  trip->go(0, *stream);
  trip->come_back(0, *stream);
  float one = 0;
  EXPECT_THROW(make_round_trip(*world, *communicator, {{{{0, view_of(&one, 1)}}, {}}}),
               ContractError);
}

}  // namespace
}  // namespace trireme::comm
