// SPDX-License-Identifier: Apache-2.0
// Messages of different sizes are sent between every pair of ranks, and back.
#include "comm/collective/transfer.hpp"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.hpp"

#include "comm/communicator.hpp"
#include "comm/control/mpi_world.hpp"
#include "comm/transfer_payload.hpp"

namespace trireme::comm {
namespace {

class TransferTest : public ::testing::TestWithParam<device::StreamMode> {
 protected:
  TransferTest() {
    for (int peer = 0; peer < world_.size(); ++peer) {
      if (peer == world_.rank())
        continue;
      for (const std::size_t group : {outer, inner}) {
        for (const std::int64_t size : sizes(world_.rank(), peer))
          add(peer, size, groups_[group].outgoing);
        for (const std::int64_t size : sizes(peer, world_.rank()))
          add(peer, size, groups_[group].incoming);
      }
    }
  }
  void add(int peer, std::int64_t size, std::vector<Message>& list) {
    memory_.push_back(std::make_unique<std::vector<float>>(static_cast<std::size_t>(size)));
    list.push_back({peer, view_of(memory_.back()->data(), size)});
  }
  /// Calls body(value of the element, expected value) for all elements of one list.
  template <class Body>
  void for_all(std::vector<Message>& list, bool to_peer, int round, const Body& body) {
    int before = -1;
    std::size_t message = 0;
    for (const Message& one : list) {
      message = one.peer == before ? message + 1 : 0;
      before = one.peer;
      const int from = to_peer ? world_.rank() : one.peer;
      const int to = to_peer ? one.peer : world_.rank();
      auto* values = one.at.as<float>();
      for (std::int64_t i = 0; i < one.at.elements; ++i)
        body(values[i], value(from, to, message, i, round));
    }
  }

  /// The group in between is empty.
  static constexpr std::size_t outer = 0, empty = 1, inner = 2;

  MpiWorld world_;
  std::vector<std::unique_ptr<std::vector<float>>> memory_;
  std::vector<MessageGroup> groups_ = std::vector<MessageGroup>(3);
  std::unique_ptr<device::Device> device_ = device::make_cpu_device(1);
  std::unique_ptr<device::Stream> stream_ = device_->make_stream(GetParam(), "comm");
  std::unique_ptr<Communicator> communicator_ =
      make_communicator(Transport::automatic, Reduction::ordered, world_, *device_);
};

TEST_P(TransferTest, SendsEveryMessageAndSendsItBack) {
  const auto transfer = make_transfer(world_, *communicator_, groups_);
  const auto set = [](float& at, float to) { at = to; };
  const auto same = [](float at, float expected) { ASSERT_EQ(at, expected); };
  for (int round = 0; round < 2; ++round) {
    auto& [outgoing, incoming] = groups_[round == 0 ? outer : inner];
    for_all(outgoing, true, round, set);
    transfer->enqueue(round == 0 ? outer : inner, Direction::send, *stream_);
    stream_->synchronize();
    for_all(incoming, false, round, same);
    for_all(outgoing, true, round, same);
    // Other values are sent back.
    for_all(incoming, false, round + 2, set);
    transfer->enqueue(round == 0 ? outer : inner, Direction::send_back, *stream_);
    stream_->synchronize();
    for_all(outgoing, true, round + 2, same);
  }
  world_.barrier();
}

/// One group is sent back before another one is; neither writes to the memory of the other.
TEST_P(TransferTest, KeepsGroupsApart) {
  const auto transfer = make_transfer(world_, *communicator_, groups_);
  const auto set = [](float& at, float to) { at = to; };
  const auto same = [](float at, float expected) { ASSERT_EQ(at, expected); };
  for_all(groups_[outer].outgoing, true, 0, set);
  for_all(groups_[inner].outgoing, true, 1, set);
  for (const std::size_t group : {outer, empty, inner})
    transfer->enqueue(group, Direction::send, *stream_);
  stream_->synchronize();
  for_all(groups_[outer].incoming, false, 0, same);
  for_all(groups_[inner].incoming, false, 1, same);
  for_all(groups_[outer].incoming, false, 2, set);
  transfer->enqueue(empty, Direction::send_back, *stream_);
  transfer->enqueue(outer, Direction::send_back, *stream_);
  stream_->synchronize();
  for_all(groups_[outer].outgoing, true, 2, same);
  for_all(groups_[inner].outgoing, true, 1, same);
  for_all(groups_[inner].incoming, false, 3, set);
  transfer->enqueue(inner, Direction::send_back, *stream_);
  stream_->synchronize();
  for_all(groups_[inner].outgoing, true, 3, same);
  world_.barrier();
}

INSTANTIATE_TEST_SUITE_P(
    , TransferTest, ::testing::Values(device::StreamMode::inlined, device::StreamMode::concurrent));

TEST(Transfer, OneRankSendsNothing) {
  const auto world = make_self_world();
  const auto device = device::make_cpu_device(1);
  const auto stream = device->make_stream(device::StreamMode::inlined, "comm");
  const auto communicator = make_communicator(Transport::self, Reduction::ordered, *world, *device);
  const auto transfer = make_transfer(*world, *communicator, {{}});
  transfer->enqueue(0, Direction::send, *stream);
  transfer->enqueue(0, Direction::send_back, *stream);
  float one = 0;
  EXPECT_THROW(make_transfer(*world, *communicator, {{{{0, view_of(&one, 1)}}, {}}}),
               ContractError);
}

}  // namespace
}  // namespace trireme::comm
