// SPDX-License-Identifier: Apache-2.0
// Ranks that share one GPU. NCCL refuses this unless the ranks claim to be on different hosts; then
// it connects them through sockets.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "base/dtype.hpp"
#include "device/device.hpp"

#include "comm/control/mpi_world.hpp"
#include "comm/transport/transports.hpp"

#include "support/gpu.hpp"

namespace trireme::test {

/// Must run before the first NCCL call, which reads the variables once.
inline void pretend_to_be_on_a_host_of_ones_own(int rank) {
  setenv("NCCL_HOSTID", ("rank" + std::to_string(rank)).c_str(), 1);
  for (const auto& [name, value] : {std::pair{"NCCL_NET", "Socket"},
                                    {"NCCL_SOCKET_IFNAME", "lo"},
                                    {"NCCL_IB_DISABLE", "1"},
                                    {"NCCL_MNNVL_ENABLE", "0"},
                                    {"NCCL_NVLS_ENABLE", "0"},
                                    {"NCCL_RAS_ENABLE", "0"}})
    setenv(name, value, 1);
}

/// For tests of all dtypes that are sent.
class OverNccl : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    device::load_kernels_eagerly();
    TRIREME_NEEDS_GPU();
    world_.set_deadline(60);
    pretend_to_be_on_a_host_of_ones_own(world_.rank());
    device_ = device::make_cuda_device(0);
    compute_ = device_->make_stream(device::StreamMode::inlined, "compute");
    communicator_ = comm::make_communicator(comm::Transport::nccl, comm::Reduction::sum, world_,
                                            *device_, {.most_blocks = 2});
  }

  comm::MpiWorld world_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Stream> compute_;
  std::unique_ptr<comm::Communicator> communicator_;
};

}  // namespace trireme::test
