// SPDX-License-Identifier: Apache-2.0
#include "comm/collective/round_trip.hpp"

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

constexpr int trip_tag = 17;
/// Active messages per direction, shared by the peers. Source: as for Spread
/// (comm/collective/spread.hpp).
constexpr std::size_t window = 64;
constexpr std::size_t least_window = 2;  // of a peer

/// What this rank exchanges with one peer in one direction, cut into messages.
struct Channel {
  int peer = 0;  ///< of the world
  std::vector<View> messages;
  std::size_t begun = 0, ended = 0;  ///< in the exchange under way
};

std::vector<Channel> channels_of(const std::vector<Passenger>& pieces,
                                 int first,
                                 std::size_t message_bytes) {
  std::map<int, Channel> by_peer;
  const auto most = static_cast<std::int64_t>(message_bytes);
  for (const auto& [peer, at] : pieces) {
    Channel& channel = by_peer[peer];
    channel.peer = first + peer;
    const View bytes(at.data, static_cast<std::int64_t>(at.bytes()), DType::u8);
    for (std::int64_t begin = 0; begin < bytes.elements; begin += most)
      channel.messages.push_back(bytes.slice(begin, std::min(most, bytes.elements - begin)));
  }
  std::vector<Channel> channels;
  for (auto& [peer, channel] : by_peer) channels.push_back(std::move(channel));
  return channels;
}

std::size_t window_of(const std::vector<Channel>& channels) {
  return channels.empty() ? 0 : std::max(window / channels.size(), least_window);
}

class MpiRoundTrip final : public RoundTrip {
 public:
  /// `first`: of the communicator's ranks in the world.
  MpiRoundTrip(MpiWorld& world, const std::vector<Passengers>& groups, int first)
      : comm_(OwnedComm::duplicate(world.comm())), progress_(world.watchdog()) {
    const std::size_t bytes = message_bytes({}, world.local_size() == world.size());
    std::size_t most = 0;
    for (const auto& [leaving, arriving] : groups) {
      const Group& group = groups_.emplace_back(
          Group{channels_of(leaving, first, bytes), channels_of(arriving, first, bytes)});
      most = std::max(most, num_requests(group.leaving) + num_requests(group.arriving));
    }
    requests_.assign(most, MPI_REQUEST_NULL);
  }

  void go(std::size_t group, device::Stream& stream) override {
    travel(groups_[group].leaving, groups_[group].arriving, stream);
  }
  void come_back(std::size_t group, device::Stream& stream) override {
    travel(groups_[group].arriving, groups_[group].leaving, stream);
  }

 private:
  struct Group {
    std::vector<Channel> leaving, arriving;
  };

  static std::size_t num_requests(const std::vector<Channel>& channels) {
    return channels.size() * window_of(channels);
  }

  void travel(std::vector<Channel>& sent, std::vector<Channel>& received, device::Stream& stream) {
    device::cpu::stream_of(stream).run([this, out = &sent, in = &received] {
      const auto entered = progress_.enter("an exchange of matrices");
      run(*out, *in);
    });
  }

  void run(std::vector<Channel>& sent, std::vector<Channel>& received) {
    const Abandon open(requests_);
    const auto all = std::span(requests_);
    const std::size_t num_receives = num_requests(received);
    for (auto* channels : {&sent, &received})
      for (Channel& channel : *channels) channel.begun = channel.ended = 0;
    const auto receive = [this](const Channel& from, const View& at, MPI_Request& request) {
      TRIREME_MPI(MPI_Irecv(at.data, static_cast<int>(at.elements), MPI_BYTE, from.peer, trip_tag,
                            comm_.get(), &request));
    };
    const auto send = [this](const Channel& to, const View& at, MPI_Request& request) {
      TRIREME_MPI(MPI_Isend(at.data, static_cast<int>(at.elements), MPI_BYTE, to.peer, trip_tag,
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
    bool some = false;  ///< messages were completed
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
      for (; channel.begun < std::min(channel.messages.size(), channel.ended + depth);
           ++channel.begun)
        post(channel, channel.messages[channel.begun], slots[channel.begun % depth]);
      moved.over = moved.over && channel.ended == channel.messages.size();
    }
    return moved;
  }

  OwnedComm comm_;
  Progress progress_;
  std::vector<Group> groups_;
  std::vector<MPI_Request> requests_;  // of one exchange: those of received channels, then of sent
};

/// One rank: nothing is sent.
class NoTrip final : public RoundTrip {
 public:
  void go(std::size_t /*group*/, device::Stream& /*stream*/) override {}
  void come_back(std::size_t /*group*/, device::Stream& /*stream*/) override {}
};

}  // namespace

std::unique_ptr<RoundTrip> make_round_trip(World& world,
                                           Communicator& communicator,
                                           const std::vector<Passengers>& groups) {
  for (const Passengers& group : groups)
    for (const auto* list : {&group.leaving, &group.arriving})
      for (const Passenger& one : *list)
        TRIREME_EXPECT(
            one.peer >= 0 && one.peer < communicator.size() && one.peer != communicator.rank(),
            "rank {} exchanges a piece with rank {} of {}", communicator.rank(), one.peer,
            communicator.size());
  if (communicator.size() == 1)
    return std::make_unique<NoTrip>();
  if (auto trip = communicator.round_trip(groups))
    return trip;
  auto* mpi = dynamic_cast<MpiWorld*>(&world);
  if (mpi == nullptr)
    throw UserError(
        "an exchange of matrices between ranks needs MPI, but this run was started without it");
  mpi->barrier();  // MPI splits communicators without a deadline, so all ranks must be here
  const int first = world.rank() - communicator.rank();  // of this replica
  return std::make_unique<MpiRoundTrip>(*mpi, groups, first);
}

}  // namespace trireme::comm
