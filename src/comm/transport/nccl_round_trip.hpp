// SPDX-License-Identifier: Apache-2.0
// The round trip of GPUs (comm/collective/round_trip.hpp).
#pragma once

#include <utility>
#include <vector>

#include <nccl.h>

#include "device/cuda/handle.hpp"

#include "comm/collective/round_trip.hpp"
#include "comm/communicator.hpp"
#include "comm/transport/nccl_comm.hpp"

namespace trireme::comm {

/// Enqueues like the collectives of `comm`, which outlives it.
class NcclRoundTrip final : public RoundTrip {
 public:
  NcclRoundTrip(NcclComm& comm, std::vector<Passenger> leaving, std::vector<Passenger> arriving)
      : comm_(comm), leaving_(std::move(leaving)), arriving_(std::move(arriving)) {}

  void go(device::Stream& stream) override { travel(leaving_, arriving_, stream); }
  void come_back(device::Stream& stream) override { travel(arriving_, leaving_, stream); }

 private:
  void travel(const std::vector<Passenger>& sent,
              const std::vector<Passenger>& received,
              device::Stream& stream) {
    if (sent.empty() && received.empty())
      return;  // no peer waits for this rank, and NCCL has no place for an empty group
    const auto raw = device::cuda::handle_of(stream);
    comm_.collective("exchange", matrices_of_the_step, stream, [&](ncclComm_t comm) {
      ncclResult_t status = ncclGroupStart();
      const auto keep = [&](ncclResult_t next) {
        if (status == ncclSuccess || status == ncclInProgress)
          status = next;
      };
      for (const auto& [peer, at] : sent)
        keep(ncclSend(at.data, at.bytes(), ncclInt8, peer, comm, raw));
      for (const auto& [peer, at] : received)
        keep(ncclRecv(at.data, at.bytes(), ncclInt8, peer, comm, raw));
      const ncclResult_t ended = ncclGroupEnd();
      keep(ended);
      return status;
    });
  }

  NcclComm& comm_;
  const std::vector<Passenger> leaving_, arriving_;
};

}  // namespace trireme::comm
