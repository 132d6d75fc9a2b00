// SPDX-License-Identifier: Apache-2.0
// Pieces of memory that travel between any ranks, and back the same way: an all-to-all of unequal
// parts, for work that one rank does for the others. Which pieces is decided once, so both ways are
// tables of messages.
//
// 1. MPI messages whatever the transport of the buckets is, on a communicator of its own: what
//    travels is copied, never added, so the bits are the same however the ranks are connected.
// 2. All messages of a way are posted at once and received where they belong: no scratch, and
//    nothing to wait for in turn. A way allocates nothing here.
// 3. Between two ranks, the pieces that one sends are those that the other receives: equal counts,
//    sizes and order. A rank sends nothing to itself.
// 4. Waiting is polled and has the world's deadline, as every collective
//    (comm/control/progress.hpp).
#pragma once

#include <memory>
#include <vector>

#include "base/view.hpp"

#include "device/device.hpp"

#include "comm/control/world.hpp"

namespace trireme::comm {

/// A piece in this rank's memory, and the rank to or from which it travels.
struct Passenger {
  int peer = 0;
  View at;
};

class RoundTrip {
 public:
  virtual ~RoundTrip() = default;
  /// Sends what leaves and receives what arrives, in stream order. Collective.
  virtual void go(device::Stream& stream) = 0;
  /// Sends what arrived and receives what left, into the places where they were.
  virtual void come_back(device::Stream& stream) = 0;
};

/// Collective; the world outlives the result, and the memory the trips. Throws UserError where
/// several ranks have no MPI.
std::unique_ptr<RoundTrip> make_round_trip(World& world,
                                           const std::vector<Passenger>& leaving,
                                           const std::vector<Passenger>& arriving);

}  // namespace trireme::comm
