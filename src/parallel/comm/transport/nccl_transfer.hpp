// SPDX-License-Identifier: Apache-2.0
// A Transfer between GPUs (comm/collective/transfer.hpp).
#pragma once

#include <utility>
#include <vector>

#include <nccl.h>

#include "device/cuda/handle.hpp"

#include "comm/collective/transfer.hpp"
#include "comm/communicator.hpp"
#include "comm/transport/nccl_comm.hpp"

namespace trireme::comm {

/// Enqueues like the collectives of `comm`, which outlives it.
class NcclTransfer final : public Transfer {
 public:
  NcclTransfer(NcclComm& comm, std::vector<MessageGroup> groups)
      : comm_(comm), groups_(std::move(groups)) {}

  void send(std::size_t group, device::Stream& stream) override {
    exchange(groups_[group].outgoing, groups_[group].incoming, stream);
  }
  void send_back(std::size_t group, device::Stream& stream) override {
    exchange(groups_[group].incoming, groups_[group].outgoing, stream);
  }

 private:
  void exchange(const std::vector<Message>& sent,
                const std::vector<Message>& received,
                device::Stream& stream) {
    const auto raw = device::cuda::handle_of(stream);
    comm_.collective("exchange", matrices_of_the_step, stream, [&](ncclComm_t comm) {
      if (sent.empty() && received.empty())
        return ncclSuccess;  // NCCL accepts no empty group; the watchdog counts it
      ncclResult_t status = ncclGroupStart();
      const auto keep_first_error = [&](ncclResult_t next) {
        if (status == ncclSuccess || status == ncclInProgress)
          status = next;
      };
      for (const auto& [peer, at] : sent)
        keep_first_error(ncclSend(at.data, at.bytes(), ncclInt8, peer, comm, raw));
      for (const auto& [peer, at] : received)
        keep_first_error(ncclRecv(at.data, at.bytes(), ncclInt8, peer, comm, raw));
      const ncclResult_t ended = ncclGroupEnd();
      keep_first_error(ended);
      return status;
    });
  }

  NcclComm& comm_;
  const std::vector<MessageGroup> groups_;
};

}  // namespace trireme::comm
