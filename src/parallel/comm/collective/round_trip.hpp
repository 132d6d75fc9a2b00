// SPDX-License-Identifier: Apache-2.0
// Sends pieces of memory between any ranks, and later back: an all-to-all of unequal parts, for
// work that one rank does for the others. The pieces are given once, in groups that travel by
// themselves, so both directions of a group are tables of messages.
//
// 1. On CPUs it uses MPI messages with every transport of the buckets, on a communicator of its own.
//    On GPUs it is one NCCL group of sends and receives per direction on the communicator of the
//    buckets, where NCCL runs one operation at a time: kernels of two communicators that wait for
//    their peers may keep each other from running. So there it takes its turn with the collectives
//    of the buckets (Communicator, rule 3). Pieces are copied, never added, so the bits do
//    not depend on how the ranks are connected.
// 2. Pieces are received in place: there is no scratch. MPI's messages are as small as those of
//    buckets, and a window of them is under way to and from each peer. With
//    whole pieces, two ranks that did not begin at once sent one after the other, at half the
//    link's rate (Open MPI over TCP; docs/figures.md). A peer's window waits for no
//    other peer, so there is no order in which ranks could wait for each other. go() and
//    come_back() allocate nothing. They run one at a time, on one stream or in an order made by
//    events.
// 3. Between two ranks, the pieces of a group that one sends and the other receives must have the
//    same number, sizes and order. A rank sends nothing to itself.
// 4. Waiting has the world's deadline, as in every collective: MPI's is polled
//    (comm/control/progress.hpp), NCCL's is monitored (comm/transport/nccl_comm.hpp).
#pragma once

#include <cstddef>
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

/// Those that travel together.
struct Passengers {
  std::vector<Passenger> leaving, arriving;
};

class RoundTrip {
 public:
  virtual ~RoundTrip() = default;
  /// Sends the leaving pieces of a group and receives the arriving ones, in stream order.
  /// Collective.
  virtual void go(std::size_t group, device::Stream& stream) = 0;
  /// Sends the arrived pieces of a group back, and receives the leaving ones into the memory that
  /// they had. Collective.
  virtual void come_back(std::size_t group, device::Stream& stream) = 0;
};

/// Collective; as many groups on every rank. World and communicator outlive the result, and so does
/// the memory of the pieces. Throws UserError where several ranks have no MPI.
std::unique_ptr<RoundTrip> make_round_trip(World& world,
                                           Communicator& communicator,
                                           const std::vector<Passengers>& groups);

}  // namespace trireme::comm
