// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>

#include "base/error.hpp"
#include "base/error_line.hpp"
#include "base/text.hpp"
#include "device/cuda/check.hpp"
#include "device/cuda/handle.hpp"

#include "comm/transport/nccl_comm.hpp"
#include "comm/transport/nccl_sum.hpp"
#include "comm/transport/transports.hpp"

namespace trireme::comm {
namespace {

ncclDataType_t type_of(DType dtype) {
  return dtype == DType::bf16 ? ncclBfloat16 : dtype == DType::i64 ? ncclInt64 : ncclFloat32;
}

/// Memory that NCCL's kernels on all GPUs can access, and its registration.
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
          "NCCL", fmt::format("ncclMemAlloc {} ({} bytes) for {}", bytes_text(bytes), bytes, what),
          fmt::format("{}; last: {}", ncclGetErrorString(status), ncclGetLastError(nullptr)));
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
    } catch (const LostRank&) {  // the registration went with the communicator
    } catch (const std::exception& problem) {
      error_line("warning: {}", problem.what());
    }
    if (const auto status = ncclMemFree(data); status != ncclSuccess)
      error_line("warning: ncclMemFree failed: {}", ncclGetErrorString(status));
  }

  NcclComm& comm_;
  device::Device& device_;
  const bool registers_;
  std::map<void*, void*> handles_;
};

/// NCCL refuses two ranks on one GPU; this check fails first and names them. With NCCL_HOSTID, NCCL
/// treats the ranks as ranks of several hosts; tests use it to share a GPU.
void expect_own_gpus(World& world, const device::Device& device) {
  const auto all = world.gather_all(world.host() + ": " + device.description());
  const auto ranks = world.gather_all(std::to_string(world.rank_of_run()));
  if (std::getenv("NCCL_HOSTID") != nullptr)
    return;
  for (std::size_t a = 0; a < all.size(); ++a)
    for (std::size_t b = a + 1; b < all.size(); ++b)
      if (all[a] == all[b])
        throw UserError(fmt::format("ranks {} and {} share a GPU ({}); NCCL needs one GPU per rank",
                                    ranks[a], ranks[b], all[a]));
}

/// Calls `body` with a function that keeps the first error of the calls in a group.
template <class Body>
ncclResult_t in_group(const Body& body) {
  ncclResult_t status = ncclGroupStart();
  const auto keep = [&](ncclResult_t next) {
    if (status == ncclSuccess || status == ncclInProgress)
      status = next;
  };
  body(keep);
  const ncclResult_t ended = ncclGroupEnd();
  keep(ended);
  return status;
}

/// Enqueues like the collectives of `comm`, which outlives it.
class NcclTransfer final : public Transfer {
 public:
  NcclTransfer(NcclComm& comm, std::vector<MessageGroup> groups)
      : comm_(comm), groups_(std::move(groups)) {}

  void enqueue(std::size_t group, Direction direction, device::Stream& stream) override {
    const bool sends = direction == Direction::send;
    const auto& [outgoing, incoming] = groups_[group];
    const auto &sent = sends ? outgoing : incoming, &received = sends ? incoming : outgoing;
    const auto raw = device::cuda::handle_of(stream);
    comm_.collective("exchange", matrices_of_the_step, stream, [&](ncclComm_t comm) {
      if (sent.empty() && received.empty())
        return ncclSuccess;  // NCCL accepts no empty group; the watchdog counts it
      return in_group([&](const auto& keep) {
        for (const auto& [peer, at] : sent)
          keep(ncclSend(at.data, at.bytes(), ncclInt8, peer, comm, raw));
        for (const auto& [peer, at] : received)
          keep(ncclRecv(at.data, at.bytes(), ncclInt8, peer, comm, raw));
      });
    });
  }

 private:
  NcclComm& comm_;
  const std::vector<MessageGroup> groups_;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(World& world, device::Device& device, const Options& options)
      : Communicator(world.rank(), world.size()),
        comm_(world, device, options.most_blocks),
        memory_(comm_, device, options.registers_memory),
        adds_terms_(options.bf16_sum == NcclBf16Sum::fp32 && size() > 2),
        terms_(memory_.allocate(bf16_term_bytes(options, size()), "terms of sums in bf16")) {}

  [[nodiscard]] std::string_view name() const override { return word(Transport::nccl); }

  device::Buffer allocate(std::size_t bytes, std::string_view what) override {
    return memory_.allocate(bytes, what);
  }

  void enqueue(Operation operation,
               const Shards& shards,
               BucketIndex bucket,
               device::Stream& stream) override {
    const View &full = shards.full, &own = shards.own;
    if (operation != Operation::all_gather && full.dtype == DType::bf16 && adds_terms_) {
      add_terms(word(operation), shards, bucket, stream);
      if (operation == Operation::reduce_scatter)
        return;
      operation = Operation::all_gather;
    }
    const auto raw = device::cuda::handle_of(stream);
    const ncclDataType_t type = type_of(full.dtype);
    const auto count = static_cast<std::size_t>(own.elements);
    const auto call = [&](ncclComm_t comm) {
      if (operation == Operation::reduce_scatter)
        return ncclReduceScatter(full.data, own.data, count, type, ncclSum, comm, raw);
      if (operation == Operation::all_gather)
        return ncclAllGather(own.data, full.data, count, type, comm, raw);
      return ncclAllReduce(full.data, full.data, static_cast<std::size_t>(full.elements), type,
                           ncclSum, comm, raw);
    };
    comm_.collective(word(operation), bucket, stream, std::cref(call));  // without an allocation
  }

  std::unique_ptr<Transfer> transfer(const std::vector<MessageGroup>& groups) override {
    return std::make_unique<NcclTransfer>(comm_, groups);
  }

 private:
  /// Every rank sends its term of each shard to the owner, which adds the terms. This sends as many
  /// bytes as a reduce-scatter, in parts that fit into terms_.
  void add_terms(const char* operation,
                 const Shards& shards,
                 BucketIndex bucket,
                 device::Stream& stream) {
    TRIREME_EXPECT(terms_.bytes() > 0, "a sum in bf16 of {} without memory for its terms",
                   Collective{operation, bucket, true}.text());
    const auto raw = device::cuda::handle_of(stream);
    const auto room = static_cast<std::int64_t>(terms_.bytes() / sizeof(Bf16)) / size();
    const View terms = terms_.view(DType::bf16);
    for (std::int64_t at = 0; at < shards.own.elements; at += room) {
      const std::int64_t count = std::min(room, shards.own.elements - at);
      comm_.collective(operation, bucket, stream, [&](ncclComm_t comm) {
        return in_group([&](const auto& keep) {
          for (int step = 1; step < size(); ++step) {
            const int to = (rank() + step) % size(), from = (rank() + size() - step) % size();
            const auto elements = static_cast<std::size_t>(count);
            keep(ncclSend(shards.of(to).slice(at, count).data, elements, ncclBfloat16, to, comm,
                          raw));
            keep(ncclRecv(terms.slice(from * room, count).data, elements, ncclBfloat16, from, comm,
                          raw));
          }
        });
      });
      sum_bf16_terms(shards.own.as<Bf16>() + at, terms.as<Bf16>(), room, count, rank(), size(),
                     raw);
    }
  }

  NcclComm comm_;
  NcclMemory memory_;
  const bool adds_terms_;  // adds bf16 terms itself, instead of NCCL
  device::Buffer terms_;   // [ranks][stride] bf16; empty if there are no such sums
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(World& world,
                                                     device::Device& device,
                                                     const Options& options) {
  expect_own_gpus(world, device);
  return std::make_unique<NcclCommunicator>(world, device, options);
}

std::string loaded_nccl_version() {
  int code = 0;
  const ncclResult_t status = ncclGetVersion(&code);
  if (status != ncclSuccess)
    throw CommError("NCCL", "ncclGetVersion", ncclGetErrorString(status));
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

}  // namespace trireme::comm
