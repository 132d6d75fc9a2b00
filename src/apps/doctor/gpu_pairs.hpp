// SPDX-License-Identifier: Apache-2.0
// The links between the GPUs of a host, as CUDA reports them, and the transport that NCCL is
// expected to use for each pair of ranks. Nothing is measured: NCCL chooses when a communicator is
// created, and logs its choice with NCCL_DEBUG=INFO.
//
// Expected, by NCCL's user guide (sections "Troubleshooting" and "Environment variables"):
//   P2P         a GPU can map the other's memory and use atomics on it, as over NVLink
//   P2P or SHM  it can map it without atomics, as over PCIe: NCCL_P2P_LEVEL and the distance decide
//   SHM         it cannot map it, or does not see the other GPU: through host memory
//   NET         inside a host with NCCL_SHM_DISABLE=1; between hosts always
#pragma once

#include <string>
#include <tuple>
#include <vector>

#include "device/device.hpp"

namespace trireme::device {

inline auto fields(GpuLink& link) {
  return std::tie(link.from, link.to, link.peer_access, link.native_atomics, link.performance_rank);
}

}  // namespace trireme::device

namespace trireme::doctor {

struct RankGpu {
  std::string host;
  std::string gpu;                     ///< UUID
  std::vector<device::GpuLink> links;  ///< from this GPU to the other visible ones
  bool peer_off = false;               ///< NCCL_P2P_DISABLE=1
  bool shared_off = false;             ///< NCCL_SHM_DISABLE=1

  bool operator==(const RankGpu&) const = default;
  auto fields() { return std::tie(host, gpu, links, peer_off, shared_off); }
};

/// For this process. Requires: `device` is a GPU.
RankGpu gpu_of_this_rank(const std::string& host, const device::Device& device);

/// Two ranks of one host, first < second.
struct GpuPair {
  int first = 0, second = 0;
  std::string host;
  std::string link;      ///< "peer access with atomics, performance rank 0"
  std::string expected;  ///< of NCCL: "P2P", "P2P or SHM", "SHM", "NET"

  bool operator==(const GpuPair&) const = default;
};

/// All pairs of ranks on the same host; `ranks` by rank.
std::vector<GpuPair> pairs_of(const std::vector<RankGpu>& ranks);

/// The environment variables NCCL_* of this process, "NAME=value", sorted.
std::vector<std::string> nccl_settings();

}  // namespace trireme::doctor
