// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>

#include "base/error.hpp"
#include "base/text.hpp"

#include "device/cuda/check.hpp"
#include "device/cuda/handle.hpp"

#include "comm/nccl_comm.hpp"
#include "comm/transports.hpp"

namespace trireme::comm {
namespace {

class NcclShards final : public Shards {
 public:
  NcclShards(View bucket, int rank, int size) : Shards(bucket, rank, size) {}
};

ncclDataType_t type_of(DType dtype) {
  return dtype == DType::bf16 ? ncclBfloat16 : dtype == DType::i64 ? ncclInt64 : ncclFloat32;
}

/// Memory that NCCL's kernels reach on all GPUs, and its registration.
class NcclMemory final : public device::MemorySource {
 public:
  NcclMemory(NcclComm& comm, device::Device& device, bool registers)
      : comm_(comm), device_(device), registers_(registers) {}

  device::Buffer allocate(std::size_t bytes, std::string_view what) {
    if (bytes == 0)
      return {};
    device::cuda::make_current(device_);
    void* at = nullptr;
    if (const auto status = ncclMemAlloc(&at, bytes); status != ncclSuccess)
      throw CommError(
          "NCCL",
          fmt::format("ncclMemAlloc {} ({} bytes) for {}", bytes_text(static_cast<double>(bytes)),
                      bytes, what),
          fmt::format("{}; last: {}", ncclGetErrorString(status), ncclGetLastError(nullptr)),
          __FILE__, __LINE__);
    device::Buffer buffer(*this, static_cast<std::byte*>(at), bytes);
    TRIREME_CUDA(cudaMemset(at, 0, bytes));
    TRIREME_CUDA(cudaDeviceSynchronize());
    if (registers_) {
      void*& handle = handles_[at];
      comm_.run("ncclCommRegister",
                [&](ncclComm_t comm) { return ncclCommRegister(comm, at, bytes, &handle); });
    }
    return buffer;
  }

 private:
  void release(std::byte* data, std::size_t /*bytes*/) noexcept override {
    try {
      if (const auto known = handles_.find(data); known != handles_.end()) {
        comm_.run("ncclCommDeregister",
                  [&](ncclComm_t comm) { return ncclCommDeregister(comm, known->second); });
        handles_.erase(known);
      }
    } catch (const std::exception& problem) {
      std::fprintf(stderr, "warning: %s\n", problem.what());
    }
    if (const auto status = ncclMemFree(data); status != ncclSuccess)
      std::fprintf(stderr, "warning: ncclMemFree failed: %s\n", ncclGetErrorString(status));
  }

  NcclComm& comm_;
  device::Device& device_;
  const bool registers_;
  std::map<void*, void*> handles_;
};

/// NCCL refuses two ranks on one GPU in its own words; here are ours. NCCL_HOSTID makes it take the
/// ranks for ranks of several hosts, which is how tests share a GPU.
void expect_own_gpus(World& world, const device::Device& device) {
  const auto all = world.gather_all(world.host() + ": " + device.description());
  if (std::getenv("NCCL_HOSTID") != nullptr)
    return;
  for (std::size_t a = 0; a < all.size(); ++a)
    for (std::size_t b = a + 1; b < all.size(); ++b)
      if (all[a] == all[b])
        throw UserError(fmt::format("ranks {} and {} share a GPU ({}); NCCL wants one GPU per rank",
                                    a, b, all[a]));
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(World& world, device::Device& device, const Options& options)
      : rank_(world.rank()),
        size_(world.size()),
        comm_(world, device, options.most_blocks),
        memory_(comm_, device, options.registers_memory) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::string_view name() const override { return word(Transport::nccl); }

  device::Buffer allocate(std::size_t bytes, std::string_view what) override {
    return memory_.allocate(bytes, what);
  }

  std::unique_ptr<Shards> shards(View full) override {
    expect_bucket(full, size_);
    return std::make_unique<NcclShards>(full, rank_, size_);
  }

  void reduce_scatter(const Shards& shards, BucketIndex bucket, device::Stream& stream) override {
    const auto raw = device::cuda::handle_of(stream);
    comm_.collective("reduce_scatter", bucket, stream, [&](ncclComm_t comm) {
      return ncclReduceScatter(shards.full.data, shards.own.data, count_of(shards.own),
                               type_of(shards.full.dtype), ncclSum, comm, raw);
    });
  }

  void all_gather(const Shards& shards, BucketIndex bucket, device::Stream& stream) override {
    const auto raw = device::cuda::handle_of(stream);
    comm_.collective("all_gather", bucket, stream, [&](ncclComm_t comm) {
      return ncclAllGather(shards.own.data, shards.full.data, count_of(shards.own),
                           type_of(shards.full.dtype), comm, raw);
    });
  }

  void all_reduce(const Shards& shards, BucketIndex bucket, device::Stream& stream) override {
    const auto raw = device::cuda::handle_of(stream);
    comm_.collective("all_reduce", bucket, stream, [&](ncclComm_t comm) {
      return ncclAllReduce(shards.full.data, shards.full.data, count_of(shards.full),
                           type_of(shards.full.dtype), ncclSum, comm, raw);
    });
  }

 private:
  static std::size_t count_of(ConstView view) { return static_cast<std::size_t>(view.elements); }

  const int rank_;
  const int size_;
  NcclComm comm_;
  NcclMemory memory_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(World& world,
                                                     device::Device& device,
                                                     const Options& options) {
  expect_own_gpus(world, device);
  return std::make_unique<NcclCommunicator>(world, device, options);
}

}  // namespace trireme::comm
