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
  NcclRoundTrip(NcclComm& comm, std::vector<Passengers> groups)
      : comm_(comm), groups_(std::move(groups)) {}

  void go(std::size_t group, device::Stream& stream) override {
    travel(groups_[group].leaving, groups_[group].arriving, stream);
  }
  void come_back(std::size_t group, device::Stream& stream) override {
    travel(groups_[group].arriving, groups_[group].leaving, stream);
  }

 private:
  void travel(const std::vector<Passenger>& sent,
              const std::vector<Passenger>& received,
              device::Stream& stream) {
    const auto raw = device::cuda::handle_of(stream);
    comm_.collective("exchange", matrices_of_the_step, stream, [&](ncclComm_t comm) {
      if (sent.empty() && received.empty())
        return ncclSuccess;  // NCCL has no place for an empty group; the watchdog counts it
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
  const std::vector<Passengers> groups_;
};

}  // namespace trireme::comm
