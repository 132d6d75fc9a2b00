// SPDX-License-Identifier: Apache-2.0
#include "comm/collective/transfer.hpp"

#include <utility>

#include "device/cpu/cpu_stream.hpp"

#include "comm/collective/channels.hpp"
#include "comm/communicator.hpp"
#include "comm/control/mpi_world.hpp"
#include "comm/transport/transports.hpp"

namespace trireme::comm {
namespace {

constexpr int transfer_tag = 17;

class MpiTransfer final : public Transfer {
 public:
  /// `first`: the world rank of the communicator's rank 0.
  MpiTransfer(MpiWorld& world, const std::vector<MessageGroup>& groups, int first)
      : comm_(OwnedComm::duplicate(world.comm())),
        progress_(world.watchdog(), world.lane_part()),
        channels_(comm_.get(),
                  progress_,
                  transfer_tag,
                  message_bytes({}, world.local_size() == world.size())) {
    for (const auto& [outgoing, incoming] : groups) {
      const auto& [sent, received] =
          groups_.emplace_back(channels_of(outgoing, first), channels_of(incoming, first));
      channels_.reserve(sent, received);
      channels_.reserve(received, sent);
    }
  }

  void enqueue(std::size_t group, Direction direction, device::Stream& stream) override {
    device::cpu::stream_of(stream).run([this, group = &groups_[group], direction] {
      const auto entered = progress_.enter("an exchange of messages");
      const auto& [outgoing, incoming] = *group;
      direction == Direction::send ? channels_.exchange(outgoing, incoming)
                                   : channels_.exchange(incoming, outgoing);
    });
  }

 private:
  OwnedComm comm_;
  Progress progress_;
  Channels channels_;
  std::vector<std::pair<std::vector<Channel>, std::vector<Channel>>> groups_;  // outgoing, incoming
};

/// One rank: nothing is sent.
class SelfTransfer final : public Transfer {
 public:
  void enqueue(std::size_t /*group*/,
               Direction /*direction*/,
               device::Stream& /*stream*/) override {}
};

}  // namespace

std::unique_ptr<Transfer> make_transfer(World& world,
                                        Communicator& communicator,
                                        const std::vector<MessageGroup>& groups) {
  for (const MessageGroup& group : groups)
    for (const auto* list : {&group.outgoing, &group.incoming})
      for (const Message& one : *list)
        TRIREME_EXPECT(
            one.peer >= 0 && one.peer < communicator.size() && one.peer != communicator.rank(),
            "rank {} exchanges a message with rank {} of {}", communicator.rank(), one.peer,
            communicator.size());
  if (communicator.size() == 1)
    return std::make_unique<SelfTransfer>();
  if (auto transfer = communicator.transfer(groups))
    return transfer;
  auto* mpi = dynamic_cast<MpiWorld*>(&world);
  if (mpi == nullptr)
    throw UserError("messages between ranks need MPI, but this run was started without it");
  mpi->barrier();  // MPI splits communicators without a deadline, so all ranks must be here
  const int first = world.rank() - communicator.rank();  // of this replica
  return std::make_unique<MpiTransfer>(*mpi, groups, first);
}

}  // namespace trireme::comm
