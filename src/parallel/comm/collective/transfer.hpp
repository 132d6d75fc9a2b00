// SPDX-License-Identifier: Apache-2.0
// Sends messages between any ranks, and later sends results back: an all-to-all of unequal parts,
// for work that one rank does for the others. The messages are given once, in groups that are sent
// separately.
//
// 1. On CPUs it uses MPI messages on its own communicator, with every transport of the buckets. On
//    GPUs a direction of a group is one NCCL group of sends and receives on the communicator of the
//    buckets, ordered with their collectives (Communicator, rule 3): kernels of two communicators
//    that wait for their peers may block each other. Data is copied, never added, so the bits do
//    not depend on the transport.
// 2. Messages are received in place. With MPI they are sent in chunks (comm/collective/channels.hpp).
//    enqueue() allocates nothing. Exchanges run one at a time, on one stream or on streams ordered
//    by events.
// 3. Between two ranks, the messages that one sends and the other receives in a group must have the
//    same number, sizes and order. A rank sends nothing to itself.
// 4. The world's deadline applies, as in every collective: MPI requests are polled
//    (comm/control/progress.hpp), NCCL is monitored (comm/transport/nccl_comm.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/view.hpp"
#include "device/device.hpp"

#include "comm/control/world.hpp"

namespace trireme::comm {

class Communicator;

/// Memory of this rank to send to, or receive from, the rank `peer` of the communicator.
struct Message {
  int peer = 0;
  View at;
};

struct MessageGroup {
  std::vector<Message> outgoing, incoming;
};

/// send: the outgoing messages of a group are sent, and the incoming ones received. send_back: the
/// memory of the incoming messages is sent back to its senders, and the memory of the outgoing ones
/// receives.
enum class Direction : std::uint8_t { send, send_back };

class Transfer {
 public:
  virtual ~Transfer() = default;
  /// Exchanges the messages of a group, in stream order. Collective.
  virtual void enqueue(std::size_t group, Direction direction, device::Stream& stream) = 0;
};

/// Collective, with the same number of groups on every rank. The world, the communicator and the
/// memory of the messages must outlive the result. Throws UserError for several ranks without MPI.
std::unique_ptr<Transfer> make_transfer(World& world,
                                        Communicator& communicator,
                                        const std::vector<MessageGroup>& groups);

}  // namespace trireme::comm
