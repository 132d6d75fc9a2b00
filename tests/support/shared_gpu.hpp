// SPDX-License-Identifier: Apache-2.0
// Ranks that share one GPU. NCCL refuses that unless the ranks claim hosts of their own; then it
// connects them through sockets.
#pragma once

#include <cstdlib>
#include <string>
#include <utility>

namespace trireme::test {

/// Before the first call of NCCL, which reads them once.
inline void pretend_to_be_on_a_host_of_ones_own(int rank) {
  setenv("NCCL_HOSTID", ("rank" + std::to_string(rank)).c_str(), 1);
  for (const auto& [name, value] : {std::pair{"NCCL_NET", "Socket"},
                                    {"NCCL_SOCKET_IFNAME", "lo"},
                                    {"NCCL_IB_DISABLE", "1"},
                                    {"NCCL_MNNVL_ENABLE", "0"},
                                    {"NCCL_NVLS_ENABLE", "0"},
                                    {"NCCL_RAS_ENABLE", "0"},
                                    {"CUDA_MODULE_LOADING", "EAGER"}})
    setenv(name, value, 1);
}

}  // namespace trireme::test
