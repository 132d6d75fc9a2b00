// SPDX-License-Identifier: Apache-2.0
#include "comm/collective/transfer.hpp"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "device/cpu/cpu_stream.hpp"

#include "comm/communicator.hpp"
#include "comm/control/mpi_world.hpp"
#include "comm/control/requests.hpp"
#include "comm/transport/transports.hpp"

namespace trireme::comm {
namespace {

constexpr int transfer_tag = 17;
/// Active chunks per direction, shared by the peers. Source: as for UnevenGather
/// (comm/collective/uneven_gather.hpp).
constexpr std::size_t window = 64;
constexpr std::size_t least_of_a_peer = 2;  // chunks

/// The data that this rank exchanges with one peer in one direction, cut into chunks.
struct Channel {
  int peer = 0;  ///< of the world
  std::vector<View> chunks;
  std::size_t begun = 0, ended = 0;  ///< chunks of the current exchange
};

std::vector<Channel> channels_of(const std::vector<Message>& messages,
                                 int first,
                                 std::size_t chunk_bytes) {
  std::map<int, Channel> by_peer;
  const auto most = static_cast<std::int64_t>(chunk_bytes);
  for (const auto& [peer, at] : messages) {
    Channel& channel = by_peer[peer];
    channel.peer = first + peer;
    const View bytes(at.data, static_cast<std::int64_t>(at.bytes()), DType::u8);
    for (std::int64_t begin = 0; begin < bytes.elements; begin += most)
      channel.chunks.push_back(bytes.slice(begin, std::min(most, bytes.elements - begin)));
  }
  std::vector<Channel> channels;
  for (auto& [peer, channel] : by_peer) channels.push_back(std::move(channel));
  return channels;
}

std::size_t window_of(const std::vector<Channel>& channels) {
  return channels.empty() ? 0 : std::max(window / channels.size(), least_of_a_peer);
}

class MpiTransfer final : public Transfer {
 public:
  /// `first`: the world rank of the communicator's rank 0.
  MpiTransfer(MpiWorld& world, const std::vector<MessageGroup>& groups, int first)
      : comm_(OwnedComm::duplicate(world.comm())), progress_(world.watchdog()) {
    const std::size_t bytes = message_bytes({}, world.local_size() == world.size());
    std::size_t most = 0;
    for (const auto& [outgoing, incoming] : groups) {
      const Group& group = groups_.emplace_back(
          Group{channels_of(outgoing, first, bytes), channels_of(incoming, first, bytes)});
      most = std::max(most, num_requests(group.outgoing) + num_requests(group.incoming));
    }
    requests_.assign(most, MPI_REQUEST_NULL);
  }

  void send(std::size_t group, device::Stream& stream) override {
    exchange(groups_[group].outgoing, groups_[group].incoming, stream);
  }
  void send_back(std::size_t group, device::Stream& stream) override {
    exchange(groups_[group].incoming, groups_[group].outgoing, stream);
  }

 private:
  struct Group {
    std::vector<Channel> outgoing, incoming;
  };

  static std::size_t num_requests(const std::vector<Channel>& channels) {
    return channels.size() * window_of(channels);
  }

  void exchange(std::vector<Channel>& sent,
                std::vector<Channel>& received,
                device::Stream& stream) {
    device::cpu::stream_of(stream).run([this, out = &sent, in = &received] {
      const auto entered = progress_.enter("an exchange of messages");
      run(*out, *in);
    });
  }

  void run(std::vector<Channel>& sent, std::vector<Channel>& received) {
    const CancelOnExit open(requests_);
    const auto all = std::span(requests_);
    const std::size_t num_receives = num_requests(received);
    for (auto* channels : {&sent, &received})
      for (Channel& channel : *channels) channel.begun = channel.ended = 0;
    const auto receive = [this](const Channel& from, const View& at, MPI_Request& request) {
      TRIREME_MPI(MPI_Irecv(at.data, static_cast<int>(at.elements), MPI_BYTE, from.peer,
                            transfer_tag, comm_.get(), &request));
    };
    const auto send = [this](const Channel& to, const View& at, MPI_Request& request) {
      TRIREME_MPI(MPI_Isend(at.data, static_cast<int>(at.elements), MPI_BYTE, to.peer, transfer_tag,
                            comm_.get(), &request));
    };
    for (;;) {
      const Moved in = advance(received, all.first(num_receives), receive);
      const Moved out = advance(sent, all.subspan(num_receives), send);
      if (in.over && out.over)
        return;
      if (in.some || out.some)
        progress_.moved();
      else
        progress_.pause();
    }
  }

  struct Moved {
    bool some = false;  ///< chunks were completed
    bool over = true;   ///< there are no more
  };
  template <class Post>
  static Moved advance(std::vector<Channel>& channels,
                       std::span<MPI_Request> requests,
                       const Post& post) {
    const std::size_t depth = window_of(channels);
    Moved moved;
    for (std::size_t c = 0; c < channels.size(); ++c) {
      Channel& channel = channels[c];
      const auto slots = requests.subspan(c * depth, depth);
      for (; channel.ended < channel.begun && completed(slots[channel.ended % depth]);
           ++channel.ended)
        moved.some = true;
      for (; channel.begun < std::min(channel.chunks.size(), channel.ended + depth);
           ++channel.begun)
        post(channel, channel.chunks[channel.begun], slots[channel.begun % depth]);
      moved.over = moved.over && channel.ended == channel.chunks.size();
    }
    return moved;
  }

  OwnedComm comm_;
  Progress progress_;
  std::vector<Group> groups_;
  std::vector<MPI_Request> requests_;  // of one exchange: receives, then sends
};

/// One rank: nothing is sent.
class SelfTransfer final : public Transfer {
 public:
  void send(std::size_t /*group*/, device::Stream& /*stream*/) override {}
  void send_back(std::size_t /*group*/, device::Stream& /*stream*/) override {}
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
