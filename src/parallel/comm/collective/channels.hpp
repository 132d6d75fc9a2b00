// SPDX-License-Identifier: Apache-2.0
// Messages of any sizes between a rank and its peers, sent in chunks of the size that buckets use.
//
// 1. Data is received in place, without scratch.
// 2. Each peer and direction has its own window of chunks, which does not wait for another peer, so
//    ranks cannot deadlock. If each message were sent whole, two ranks that start at different times
//    would send one after the other, at half the link's rate (Open MPI over TCP;
//    docs/results/choices.csv).
// 3. exchange() allocates nothing after reserve().
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <mpi.h>

#include "base/view.hpp"

#include "comm/collective/transfer.hpp"
#include "comm/control/progress.hpp"

namespace trireme::comm {

/// What a rank sends to one peer, or receives from it, in order.
struct Channel {
  int peer = 0;
  std::vector<View> bytes;  ///< u8, none empty
};
/// The messages by peer; `first`: the rank of peer 0 in the communicator of the channels.
std::vector<Channel> channels_of(const std::vector<Message>& messages, int first = 0);

class Channels {
 public:
  /// Borrows `comm` and `progress`. `chunk_bytes`: the largest size of one message.
  Channels(MPI_Comm comm, Progress& progress, int tag, std::size_t chunk_bytes)
      : comm_(comm),
        progress_(progress),
        tag_(tag),
        chunk_bytes_(static_cast<std::int64_t>(chunk_bytes)) {}

  void reserve(const std::vector<Channel>& sent, const std::vector<Channel>& received);
  /// Collective among the ranks that have messages for each other. Requires: reserve().
  void exchange(const std::vector<Channel>& sent, const std::vector<Channel>& received);

 private:
  /// Where a channel is in the current exchange.
  struct Cursor {
    std::size_t begun = 0, ended = 0;  // chunks
    std::size_t next = 0;              // of Channel::bytes
    std::int64_t offset = 0;           // in it
  };
  struct Direction {
    std::vector<MPI_Request> requests;  // [channel][window]
    std::vector<Cursor> cursors;        // [channel]
  };
  struct Moved {
    bool some = false;  ///< chunks were completed
    bool over = true;   ///< there are no more
  };
  Moved advance(Direction& direction, const std::vector<Channel>& channels, bool sends);

  MPI_Comm comm_;
  Progress& progress_;
  const int tag_;
  const std::int64_t chunk_bytes_;
  Direction sending_, receiving_;
};

}  // namespace trireme::comm
