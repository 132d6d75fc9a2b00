// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <numeric>
#include <vector>

#include "device/cpu/cpu_stream.hpp"

#include "comm/collective/exchange.hpp"
#include "comm/collective/ring.hpp"
#include "comm/control/integer_sums.hpp"
#include "comm/control/progress.hpp"
#include "comm/transport/transports.hpp"

namespace trireme::comm {
namespace {

class MpiShards final : public Shards {
 public:
  MpiShards(View bucket, int rank, int size) : Shards(bucket, rank, size) {}
};

std::vector<int> every_rank(int size) {
  std::vector<int> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::size_t chunk_bytes_of(const MpiWorld& world, const Options& options) {
  return message_bytes(options, world.local_size() == world.size());
}

/// Collectives run on the stream's thread; the stream keeps them in order.
class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(Reduction reduction,
                  MpiWorld& world,
                  device::Device& device,
                  const Options& options)
      : device_(device),
        reduction_(reduction),
        comm_(OwnedComm::duplicate(world.comm())),
        rank_(comm_.rank()),
        size_(comm_.size()),
        progress_(world.watchdog()),
        ring_(comm_.get(), progress_, every_rank(size_), device, chunk_bytes_of(world, options)),
        exchange_(comm_.get(),
                  progress_,
                  reduction,
                  Hosts::apart(size_),
                  device,
                  chunk_bytes_of(world, options),
                  options.exchange_bytes),
        integers_(comm_.get(), progress_) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::string_view name() const override { return word(Transport::mpi); }

  device::Buffer allocate(std::size_t bytes, std::string_view what) override {
    return device_.allocate(bytes, what);
  }

  std::unique_ptr<Shards> shards(View full) override {
    expect_bucket(full, size_);
    return std::make_unique<MpiShards>(full, rank_, size_);
  }

  void reduce_scatter(const Shards& shards, BucketIndex bucket, device::Stream& stream) override {
    device::cpu::stream_of(stream).run([this, table = &shards, bucket] {
      const auto entered = progress_.enter("reduce_scatter", bucket);
      reduce(*table);
    });
  }

  void all_gather(const Shards& shards, BucketIndex bucket, device::Stream& stream) override {
    device::cpu::stream_of(stream).run([this, table = &shards, bucket] {
      const auto entered = progress_.enter("all_gather", bucket);
      ring_.all_gather(table->full, table->own.elements);
    });
  }

  void all_reduce(const Shards& shards, BucketIndex bucket, device::Stream& stream) override {
    device::cpu::stream_of(stream).run([this, table = &shards, bucket] {
      const auto entered = progress_.enter("all_reduce", bucket);
      reduce(*table);
      if (table->full.dtype != DType::i64)
        ring_.all_gather(table->full, table->own.elements);
    });
  }

 private:
  void reduce(const Shards& shards) {
    if (shards.full.dtype == DType::i64)
      integers_.all_reduce(shards.full);
    else if (reduction_ != Reduction::sum || shards.full.dtype != DType::f32)
      exchange_.reduce_scatter(shards.full, in_place);
    else
      ring_.reduce_scatter(shards.full, shards.own.elements);
  }

  /// No other rank's memory is readable.
  static constexpr std::array<std::ptrdiff_t, 1> in_place{0};

  device::Device& device_;
  Reduction reduction_;
  OwnedComm comm_;
  int rank_;
  int size_;
  Progress progress_;
  Ring ring_;
  Exchange exchange_;
  IntegerSums integers_;
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(Reduction reduction,
                                                    MpiWorld& world,
                                                    device::Device& device,
                                                    const Options& options) {
  return std::make_unique<MpiCommunicator>(reduction, world, device, options);
}

}  // namespace trireme::comm
