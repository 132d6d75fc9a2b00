// SPDX-License-Identifier: Apache-2.0
// The stand-in for NCCL between two ranks: errors that would hang the real library or mix up its
// data are reported here, and an abort releases the other ranks.
#include <cstring>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include "comm/control/mpi_world.hpp"

#include "support/gpu.hpp"
#include "support/shared_gpu.hpp"

namespace trireme::test {
namespace {

class EmulatedNccl : public ::testing::Test {
 protected:
  void SetUp() override {
    TRIREME_NEEDS_GPU();
    world_.set_deadline(60);
    pretend_to_be_on_a_host_of_ones_own(world_.rank());
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(ncclMemAlloc(reinterpret_cast<void**>(&memory_), count * sizeof(float)), ncclSuccess);
  }
  void TearDown() override {
    if (stream_ == nullptr)
      return;
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    EXPECT_EQ(ncclMemFree(memory_), ncclSuccess);
  }

  ncclResult_t start(ncclComm_t& comm, bool blocking = true) {
    ncclUniqueId id{};
    if (world_.rank() == 0) {
      EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    }
    const std::string bytes = world_.broadcast(std::string(id.internal, sizeof id.internal), 0);
    std::memcpy(id.internal, bytes.data(), sizeof id.internal);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking ? 1 : 0;
    return ncclCommInitRankConfig(&comm, world_.size(), id, world_.rank(), &config);
  }
  /// The first error that the communicator reports.
  static ncclResult_t error_of(ncclComm_t comm) {
    ncclResult_t status = ncclSuccess;
    while (status == ncclSuccess || status == ncclInProgress)
      EXPECT_EQ(ncclCommGetAsyncError(comm, &status), ncclSuccess);
    return status;
  }
  ncclResult_t all_reduce(ncclComm_t comm, std::size_t elements) {
    return ncclAllReduce(memory_, memory_, elements, ncclFloat32, ncclSum, comm, stream_);
  }

  static constexpr std::size_t count = 1024;
  comm::MpiWorld world_;
  cudaStream_t stream_ = nullptr;
  float* memory_ = nullptr;
};

TEST_F(EmulatedNccl, FailsOnEveryRankWhenCountsDiffer) {
  ncclComm_t comm = nullptr;
  ASSERT_EQ(start(comm), ncclSuccess);
  ASSERT_EQ(all_reduce(comm, world_.rank() == 0 ? 8 : 16), ncclSuccess);
  EXPECT_EQ(error_of(comm), ncclInvalidUsage);
  EXPECT_EQ(
      std::string(ncclGetLastError(comm)),
      "operation 0 is AllReduce of 8 elements of type 7 on rank 0 and AllReduce of 16 elements "
      "of type 7 on rank 1");
  EXPECT_EQ(all_reduce(comm, 8), ncclInvalidUsage) << "nothing more on a failed communicator";
  world_.barrier();
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess) << "the abort lets the stream go on";
}

TEST_F(EmulatedNccl, AnAbortEndsTheCallOfTheOtherRank) {
  ncclComm_t comm = nullptr;
  ASSERT_EQ(start(comm), ncclSuccess);
  if (world_.rank() == 0) {
    ASSERT_EQ(all_reduce(comm, 8), ncclSuccess);
    EXPECT_EQ(error_of(comm), ncclRemoteError);
  }
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
}

TEST_F(EmulatedNccl, TakesACallOnceItWasAskedForUntilItWasTaken) {
  ncclComm_t comm = nullptr;
  ncclResult_t status = start(comm, false);
  EXPECT_EQ(status, ncclInProgress);
  while (status == ncclInProgress) ASSERT_EQ(ncclCommGetAsyncError(comm, &status), ncclSuccess);
  ASSERT_EQ(status, ncclSuccess);
  EXPECT_EQ(all_reduce(comm, 8), ncclInProgress);
  EXPECT_EQ(all_reduce(comm, 8), ncclInvalidUsage) << "the call before is still in progress";
  EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidUsage);
  do ASSERT_EQ(ncclCommGetAsyncError(comm, &status), ncclSuccess);
  while (status == ncclInProgress);
  EXPECT_EQ(status, ncclSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(ncclCommDestroy(comm), ncclInProgress);
}

TEST_F(EmulatedNccl, RefusesRanksOnOneGpuAndBuffersHalfInPlace) {
  ncclComm_t comm = nullptr;
  setenv("NCCL_HOSTID", "one host", 1);
  EXPECT_EQ(start(comm), ncclInvalidUsage);
  EXPECT_EQ(std::string(ncclGetLastError(nullptr)),
            "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 0");
  world_.barrier();
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  pretend_to_be_on_a_host_of_ones_own(world_.rank());
  ASSERT_EQ(start(comm), ncclSuccess);
  const int other = 1 - world_.rank();
  EXPECT_EQ(ncclReduceScatter(memory_, memory_ + 8 * other, 8, ncclFloat32, ncclSum, comm, stream_),
            ncclInvalidArgument);
  EXPECT_EQ(ncclAllGather(memory_ + 8 * other, memory_, 8, ncclFloat32, comm, stream_),
            ncclInvalidArgument);
  EXPECT_EQ(ncclAllReduce(memory_, memory_ + 4, 8, ncclFloat32, ncclSum, comm, stream_),
            ncclInvalidArgument);
  EXPECT_EQ(ncclAllReduce(memory_, memory_, 8, ncclFloat32, ncclMax, comm, stream_),
            ncclInvalidArgument);
  void* handle = nullptr;
  EXPECT_EQ(ncclCommRegister(comm, memory_ + 1, 8, &handle), ncclInvalidUsage);
  ASSERT_EQ(ncclCommRegister(comm, memory_, 8, &handle), ncclSuccess);
  EXPECT_EQ(ncclMemFree(memory_), ncclInvalidUsage) << "still registered";
  EXPECT_EQ(ncclCommDeregister(comm, handle), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST_F(EmulatedNccl, RunsInTheOrderOfTheCallsOnAnyStreams) {
  ncclComm_t comm = nullptr;
  ASSERT_EQ(start(comm), ncclSuccess);
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(memory_, 0, count * sizeof(float), stream_), cudaSuccess);
  const std::vector<float> ones(8, 1);
  ASSERT_EQ(cudaMemcpyAsync(memory_, ones.data(), 8 * sizeof(float), cudaMemcpyDefault, stream_),
            cudaSuccess);
  for (int i = 0; i < 10; ++i)
    ASSERT_EQ(ncclAllReduce(memory_, memory_, 8, ncclFloat32, ncclSum, comm,
                            i % 2 == 0 ? stream_ : other),
              ncclSuccess);
  ASSERT_EQ(cudaStreamSynchronize(other), cudaSuccess);
  std::vector<float> made(8);
  ASSERT_EQ(cudaMemcpyAsync(made.data(), memory_, 8 * sizeof(float), cudaMemcpyDefault, other),
            cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(other), cudaSuccess);
  EXPECT_EQ(made, std::vector<float>(8, 1024));
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
}

}  // namespace
}  // namespace trireme::test
