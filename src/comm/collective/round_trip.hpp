// SPDX-License-Identifier: Apache-2.0
// Sends pieces of memory between any ranks, and later back: an all-to-all of unequal parts, for
// work that one rank does for the others. The pieces are given once, so both directions are tables
// of messages.
//
// 1. On CPUs it uses MPI messages with every transport of the buckets, on a communicator of its own.
//    On GPUs it is one group of sends and receives per direction on the communicator of the
//    buckets, where NCCL runs one operation at a time: kernels of two communicators that wait for
//    their peers may keep each other from running. Pieces are copied, never added, so the bits do
//    not depend on how the ranks are connected.
// 2. All messages of a direction are posted at once and received in place: there is no scratch, and
//    no message waits for another. go() and come_back() allocate nothing.
// 3. Between two ranks, the pieces that one sends and the other receives must have the same number,
//    sizes and order. A rank sends nothing to itself.
// 4. Waiting has the world's deadline, as in every collective: MPI's is polled
//    (comm/control/progress.hpp), NCCL's is monitored (comm/transport/nccl_comm.hpp).
#pragma once

#include <memory>
#include <vector>

#include "base/view.hpp"

#include "device/device.hpp"

#include "comm/control/world.hpp"

namespace trireme::comm {

class Communicator;

/// A piece of this rank's memory, and the rank that receives or sends it, as Communicator::rank()
/// counts.
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

/// Collective. World and communicator outlive the result, and so does the memory of the pieces.
/// Throws UserError where several ranks have no MPI.
std::unique_ptr<RoundTrip> make_round_trip(World& world,
                                           Communicator& communicator,
                                           const std::vector<Passenger>& leaving,
                                           const std::vector<Passenger>& arriving);

}  // namespace trireme::comm
