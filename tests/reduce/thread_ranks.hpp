// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process: a World and a Communicator without MPI, so that engine and
// optimizer can run on any number of ranks under the sanitizers. Collectives add in rank order, or
// in pairs if the hub is constructed so, and read the peers' buckets in place, between barriers.
// The hub records every call.
#pragma once

#include <barrier>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "device/cpu/cpu_stream.hpp"
#include "device/device.hpp"

#include "comm/communicator.hpp"
#include "reduce/thread_world.hpp"

namespace trireme::testing {

/// The sum of term(first), …, term(first + count - 1) in pairs.
template <class Term>
float sum_of_pairs(std::size_t first, std::size_t count, const Term& term) {
  if (count == 1)
    return term(first);
  const std::size_t left = (count + 1) / 2;
  return sum_of_pairs(first, left, term) + sum_of_pairs(first + left, count - left, term);
}

/// The state that the ranks share.
class Hub : public WorldHub {
 public:
  explicit Hub(int size, comm::Reduction reduction = comm::Reduction::ordered)
      : WorldHub(size),
        reduction_(reduction),
        buckets_(static_cast<std::size_t>(size)),
        calls_(static_cast<std::size_t>(size)),
        collectives_(size) {}

  /// The collectives that `rank` enqueued, e.g. "reduce_scatter 0", in the order in which they ran.
  [[nodiscard]] const std::vector<std::string>& calls(int rank) const {
    return calls_[static_cast<std::size_t>(rank)];
  }
  /// From now on the first `limit` collectives of every rank are recorded.
  void keep_calls(std::size_t limit) {
    for (auto& calls : calls_) calls.reserve(limit);
  }

 private:
  friend class ThreadCommunicator;
  friend class ThreadTransfer;

  comm::Reduction reduction_;
  std::vector<const comm::Shards*> buckets_;
  std::vector<const comm::MessageGroup*> messages_ =
      std::vector<const comm::MessageGroup*>(buckets_.size());
  std::vector<std::vector<std::string>> calls_;
  std::barrier<> collectives_;
};

class ThreadShards final : public comm::Shards {
 public:
  ThreadShards(View bucket, int rank, int size) : Shards(bucket, rank, size) {}
};

/// Counts the bytes that this rank sends.
class ThreadTransfer final : public comm::Transfer {
 public:
  ThreadTransfer(Hub& hub, int rank, std::vector<comm::MessageGroup> groups, std::int64_t& sent)
      : hub_(hub), rank_(rank), groups_(std::move(groups)), sent_(sent) {}

  void enqueue(std::size_t group, comm::Direction direction, device::Stream& stream) override {
    if (direction == comm::Direction::send)
      return exchange(groups_[group], stream);
    back_ = {groups_[group].incoming, groups_[group].outgoing};
    exchange(back_, stream);
  }

 private:
  void exchange(const comm::MessageGroup& mine, device::Stream& stream) {
    device::cpu::stream_of(stream).run([this, &mine] {
      hub_.messages_[static_cast<std::size_t>(rank_)] = &mine;
      hub_.collectives_.arrive_and_wait();
      std::vector<std::size_t> taken(hub_.messages_.size());
      for (const comm::Message& to : mine.incoming) receive(to, taken);
      for (const comm::Message& from : mine.outgoing)
        sent_ += static_cast<std::int64_t>(from.at.bytes());
      hub_.collectives_.arrive_and_wait();
    });
  }
  /// `taken`: for each peer, how many of its messages have been read.
  void receive(const comm::Message& to, std::vector<std::size_t>& taken) const {
    const auto peer = static_cast<std::size_t>(to.peer);
    const auto& theirs = hub_.messages_[peer]->outgoing;
    while (theirs[taken[peer]].peer != rank_) ++taken[peer];
    std::memcpy(to.at.data, theirs[taken[peer]++].at.data, to.at.bytes());
  }

  Hub& hub_;
  const int rank_;
  const std::vector<comm::MessageGroup> groups_;
  comm::MessageGroup back_;
  std::int64_t& sent_;
};

class ThreadCommunicator final : public comm::Communicator {
 public:
  ThreadCommunicator(Hub& hub, int rank, device::Device& device)
      : Communicator(rank, hub.size()), hub_(hub), rank_(rank), device_(device) {}

  [[nodiscard]] std::string_view name() const override { return "threads"; }
  [[nodiscard]] std::size_t allocated_bytes() const { return allocated_bytes_; }
  /// Number of shards() calls so far.
  [[nodiscard]] int num_lookups() const { return num_lookups_; }
  /// Bytes that this rank has sent in transfers.
  [[nodiscard]] std::int64_t sent_bytes() const { return sent_bytes_; }

  device::Buffer allocate(std::size_t bytes, std::string_view what) override {
    allocated_bytes_ += bytes;
    return device_.allocate(bytes, what);
  }
  std::unique_ptr<comm::Shards> shards(View full) override {
    ++num_lookups_;
    return std::make_unique<ThreadShards>(full, rank_, size());
  }
  void enqueue(comm::Operation operation,
               const comm::Shards& shards,
               BucketIndex bucket,
               device::Stream& stream) override {
    device::cpu::stream_of(stream).run([this, operation, &shards, bucket] {
      auto& calls = hub_.calls_[static_cast<std::size_t>(rank_)];
      if (calls.size() < calls.capacity())
        calls.push_back(word(operation) + (" " + std::to_string(at(bucket))));
      hub_.buckets_[static_cast<std::size_t>(rank_)] = &shards;
      hub_.collectives_.arrive_and_wait();
      if (operation != comm::Operation::all_gather)
        sum_own();
      if (operation == comm::Operation::all_reduce)
        hub_.collectives_.arrive_and_wait();
      if (operation != comm::Operation::reduce_scatter)
        copy_others();
      hub_.collectives_.arrive_and_wait();
    });
  }

  std::unique_ptr<comm::Transfer> transfer(const std::vector<comm::MessageGroup>& groups) override {
    return std::make_unique<ThreadTransfer>(hub_, rank_, groups, sent_bytes_);
  }

 private:
  void sum_own() {
    const DType dtype = hub_.buckets_[static_cast<std::size_t>(rank_)]->own.dtype;
    if (dtype == DType::i64)
      sum_own_integers();
    else if (dtype == DType::bf16)
      sum_own_as<Bf16>();
    else
      sum_own_as<float>();
  }
  template <class T>
  void sum_own_as() {
    const auto mine = static_cast<std::size_t>(rank_);
    const View own = hub_.buckets_[mine]->own;
    const auto term = [&](std::size_t peer, std::int64_t i) {
      return static_cast<float>(hub_.buckets_[peer]->of(rank_).as<T>()[i]);
    };
    for (std::int64_t i = 0; i < own.elements; ++i) {
      float sum = 0;
      if (hub_.reduction_ == comm::Reduction::tree)
        sum =
            sum_of_pairs(0, hub_.buckets_.size(), [&](std::size_t peer) { return term(peer, i); });
      else
        for (std::size_t peer = 0; peer < hub_.buckets_.size(); ++peer) sum += term(peer, i);
      own.as<T>()[i] = T(sum);
    }
  }
  void sum_own_integers() {
    const auto mine = static_cast<std::size_t>(rank_);
    const View own = hub_.buckets_[mine]->own;
    for (std::int64_t i = 0; i < own.elements; ++i) {
      std::int64_t sum = 0;
      for (const comm::Shards* peer : hub_.buckets_) sum += peer->of(rank_).as<std::int64_t>()[i];
      own.as<std::int64_t>()[i] = sum;
    }
  }
  void copy_others() {
    const comm::Shards& mine = *hub_.buckets_[static_cast<std::size_t>(rank_)];
    for (std::size_t r = 0; r < hub_.buckets_.size(); ++r)
      if (static_cast<int>(r) != rank_)
        std::memcpy(mine.of(static_cast<int>(r)).data, hub_.buckets_[r]->own.data,
                    mine.own.bytes());
  }

  Hub& hub_;
  int rank_;
  device::Device& device_;
  std::size_t allocated_bytes_ = 0;
  int num_lookups_ = 0;
  std::int64_t sent_bytes_ = 0;
};

/// Everything that one rank of a test needs.
struct ThreadRank {
  ThreadRank(Hub& hub, int rank)
      : device(device::make_cpu_device(1)),
        compute(device->make_stream(device::StreamMode::inlined, "compute")),
        world(hub, rank),
        communicator(hub, rank, *device) {}

  std::unique_ptr<device::Device> device;
  std::unique_ptr<device::Stream> compute;
  ThreadWorld world;
  ThreadCommunicator communicator;
};

/// Runs `body` on `size` ranks, each on its own thread. An exception ends the process.
inline void run_ranks(Hub& hub, const std::function<void(ThreadRank&)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < hub.size(); ++rank)
    threads.emplace_back([&hub, &body, rank] {
      ThreadRank mine(hub, rank);
      body(mine);
    });
  for (std::thread& thread : threads) thread.join();
}
inline void run_ranks(int size, const std::function<void(ThreadRank&)>& body) {
  Hub hub(size);
  run_ranks(hub, body);
}

}  // namespace trireme::testing
