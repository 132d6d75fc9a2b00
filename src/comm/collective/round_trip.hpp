// SPDX-License-Identifier: Apache-2.0
// Sends pieces of memory between any ranks, and later back: an all-to-all of unequal parts, for
// work that one rank does for the others. The pieces are given once, so both directions are tables
// of messages.
//
// 1. It uses MPI messages with every transport of the buckets, on a communicator of its own. Pieces
//    are copied, never added, so the bits do not depend on how the ranks are connected.
// 2. All messages of a direction are posted at once and received in place: there is no scratch, and
//    no message waits for another. go() and come_back() allocate nothing.
// 3. Between two ranks, the pieces that one sends and the other receives must have the same number,
//    sizes and order. A rank sends nothing to itself.
// 4. Waiting is polled and has the world's deadline, as in every collective
//    (comm/control/progress.hpp).
#pragma once

#include <memory>
#include <vector>

#include "base/view.hpp"

#include "device/device.hpp"

#include "comm/control/world.hpp"

namespace trireme::comm {

/// A piece of this rank's memory, and the rank that receives or sends it.
struct Passenger {
  int peer = 0;
  View at;
};

class RoundTrip {
 public:
  virtual ~RoundTrip() = default;
  /// Sends the leaving pieces and receives the arriving ones, in stream order. Collective.
  virtual void go(device::Stream& stream) = 0;
  /// Sends the arrived pieces back, and receives the leaving ones into the memory that they had.
  /// Collective.
  virtual void come_back(device::Stream& stream) = 0;
};

/// Collective. The world outlives the result, and so does the memory of the pieces. Throws
/// UserError where several ranks have no MPI.
std::unique_ptr<RoundTrip> make_round_trip(World& world,
                                           const std::vector<Passenger>& leaving,
                                           const std::vector<Passenger>& arriving);

}  // namespace trireme::comm
