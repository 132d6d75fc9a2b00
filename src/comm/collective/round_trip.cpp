// SPDX-License-Identifier: Apache-2.0
#include "comm/collective/round_trip.hpp"

#include <algorithm>
#include <utility>

#include "device/cpu/cpu_stream.hpp"

#include "comm/communicator.hpp"
#include "comm/control/mpi_world.hpp"
#include "comm/control/requests.hpp"

namespace trireme::comm {
namespace {

constexpr int trip_tag = 17;
/// MPI counts bytes in an int.
constexpr std::int64_t longest_message = std::int64_t{1} << 30U;

/// As bytes, to ranks of the world.
std::vector<Passenger> cut(const std::vector<Passenger>& whole, int first) {
  std::vector<Passenger> parts;
  for (const auto& [peer, at] : whole) {
    const View bytes(at.data, static_cast<std::int64_t>(at.bytes()), DType::u8);
    for (std::int64_t begin = 0; begin < bytes.elements; begin += longest_message)
      parts.push_back(
          {first + peer, bytes.slice(begin, std::min(longest_message, bytes.elements - begin))});
  }
  return parts;
}

class MpiRoundTrip final : public RoundTrip {
 public:
  /// The pieces are cut.
  MpiRoundTrip(MpiWorld& world, std::vector<Passenger> leaving, std::vector<Passenger> arriving)
      : comm_(OwnedComm::duplicate(world.comm())),
        progress_(world.watchdog()),
        leaving_(std::move(leaving)),
        arriving_(std::move(arriving)),
        requests_(leaving_.size() + arriving_.size(), MPI_REQUEST_NULL) {}

  void go(device::Stream& stream) override { travel(leaving_, arriving_, stream); }
  void come_back(device::Stream& stream) override { travel(arriving_, leaving_, stream); }

 private:
  void travel(const std::vector<Passenger>& sent,
              const std::vector<Passenger>& received,
              device::Stream& stream) {
    device::cpu::stream_of(stream).run([this, out = &sent, in = &received] {
      const auto entered = progress_.enter("an exchange of matrices");
      run(*out, *in);
    });
  }

  void run(const std::vector<Passenger>& sent, const std::vector<Passenger>& received) {
    const Abandon open(requests_);
    std::size_t next = 0;
    for (const auto& [peer, at] : received)
      TRIREME_MPI(MPI_Irecv(at.data, static_cast<int>(at.elements), MPI_BYTE, peer, trip_tag,
                            comm_.get(), &requests_[next++]));
    for (const auto& [peer, at] : sent)
      TRIREME_MPI(MPI_Isend(at.data, static_cast<int>(at.elements), MPI_BYTE, peer, trip_tag,
                            comm_.get(), &requests_[next++]));
    // One at a time, so that each message that arrives counts as progress.
    for (MPI_Request& request : requests_) {
      while (!completed(request)) progress_.pause();
      progress_.moved();
    }
  }

  OwnedComm comm_;
  Progress progress_;
  std::vector<Passenger> leaving_, arriving_;
  std::vector<MPI_Request> requests_;
};

/// One rank: nothing is sent.
class NoTrip final : public RoundTrip {
 public:
  void go(device::Stream& /*stream*/) override {}
  void come_back(device::Stream& /*stream*/) override {}
};

}  // namespace

std::unique_ptr<RoundTrip> make_round_trip(World& world,
                                           Communicator& communicator,
                                           const std::vector<Passenger>& leaving,
                                           const std::vector<Passenger>& arriving) {
  for (const auto* list : {&leaving, &arriving})
    for (const Passenger& one : *list)
      TRIREME_EXPECT(
          one.peer >= 0 && one.peer < communicator.size() && one.peer != communicator.rank(),
          "rank {} exchanges a piece with rank {} of {}", communicator.rank(), one.peer,
          communicator.size());
  if (communicator.size() == 1)
    return std::make_unique<NoTrip>();
  if (auto trip = communicator.round_trip(leaving, arriving))
    return trip;
  auto* mpi = dynamic_cast<MpiWorld*>(&world);
  if (mpi == nullptr)
    throw UserError(
        "an exchange of matrices between ranks needs MPI, but this run was started without it");
  mpi->barrier();  // MPI splits communicators without a deadline, so all ranks must be here
  const int first = world.rank() - communicator.rank();  // of this replica
  return std::make_unique<MpiRoundTrip>(*mpi, cut(leaving, first), cut(arriving, first));
}

}  // namespace trireme::comm
