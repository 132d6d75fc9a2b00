// SPDX-License-Identifier: Apache-2.0
#include "comm/collective/channels.hpp"

#include <algorithm>
#include <map>
#include <span>

#include "comm/control/requests.hpp"

namespace trireme::comm {
namespace {

/// Active chunks per direction, shared by the peers. Source: as for a ring (ring.cpp).
constexpr std::size_t window = 64;
constexpr std::size_t least_of_a_peer = 2;  // chunks

std::size_t window_of(const std::vector<Channel>& channels) {
  return channels.empty() ? 0 : std::max(window / channels.size(), least_of_a_peer);
}

}  // namespace

std::vector<Channel> channels_of(const std::vector<Message>& messages, int first) {
  std::map<int, Channel> by_peer;
  for (const auto& [peer, at] : messages)
    if (!at.empty()) {
      Channel& channel = by_peer[peer];
      channel.peer = first + peer;
      channel.bytes.emplace_back(at.data, static_cast<std::int64_t>(at.bytes()), DType::u8);
    }
  std::vector<Channel> channels;
  for (auto& [peer, channel] : by_peer) channels.push_back(std::move(channel));
  return channels;
}

void Channels::reserve(const std::vector<Channel>& sent, const std::vector<Channel>& received) {
  for (const auto& [direction, channels] :
       {std::pair(&sending_, &sent), std::pair(&receiving_, &received)}) {
    const std::size_t requests = channels->size() * window_of(*channels);
    direction->requests.resize(std::max(direction->requests.size(), requests), MPI_REQUEST_NULL);
    direction->cursors.resize(std::max(direction->cursors.size(), channels->size()));
  }
}

void Channels::exchange(const std::vector<Channel>& sent, const std::vector<Channel>& received) {
  const CancelOnExit sends(sending_.requests), receives(receiving_.requests);
  for (Direction* direction : {&sending_, &receiving_})
    std::ranges::fill(direction->cursors, Cursor());
  for (;;) {
    const Moved in = advance(receiving_, received, false);
    const Moved out = advance(sending_, sent, true);
    if (in.over && out.over)
      return;
    if (in.some || out.some)
      progress_.moved();
    else
      progress_.pause();
  }
}

Channels::Moved Channels::advance(Direction& direction,
                                  const std::vector<Channel>& channels,
                                  bool sends) {
  const std::size_t depth = window_of(channels);
  Moved moved;
  for (std::size_t c = 0; c < channels.size(); ++c) {
    const auto& [peer, bytes] = channels[c];
    Cursor& at = direction.cursors[c];
    const auto slots = std::span(direction.requests).subspan(c * depth, depth);
    for (; at.ended < at.begun && completed(slots[at.ended % depth]); ++at.ended) moved.some = true;
    for (; at.next < bytes.size() && at.begun < at.ended + depth; ++at.begun) {
      const View whole = bytes[at.next];
      const auto count = static_cast<int>(std::min(chunk_bytes_, whole.elements - at.offset));
      MPI_Request& request = slots[at.begun % depth];
      if (sends)
        TRIREME_MPI(
            MPI_Isend(whole.data + at.offset, count, MPI_BYTE, peer, tag_, comm_, &request));
      else
        TRIREME_MPI(
            MPI_Irecv(whole.data + at.offset, count, MPI_BYTE, peer, tag_, comm_, &request));
      at.offset += count;
      if (at.offset == whole.elements) {
        ++at.next;
        at.offset = 0;
      }
    }
    moved.over = moved.over && at.next == bytes.size() && at.ended == at.begun;
  }
  return moved;
}

}  // namespace trireme::comm
