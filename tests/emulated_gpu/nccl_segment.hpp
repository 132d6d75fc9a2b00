// SPDX-License-Identifier: Apache-2.0
// Where the ranks of one emulated NCCL communicator meet: a POSIX shared memory segment with a seat
// and a slot for data per rank. The ranks are processes of one host.
//
// 1. The segment is named by the unique id. Whoever comes first makes it; it is all zero then,
// which is what every member starts from. The last one to sit down unlinks the name, and so does
// whoever gives up waiting, so that no name outlives the communicator's start.
// 2. A seat is written by its rank only; the flags `aborted` by any. Counters only grow, and what a
//    rank wrote before it raised a counter is seen by who has seen the counter.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace emulated::nccl {

inline constexpr int most_ranks = 16;
inline constexpr std::size_t slot_bytes = std::size_t{256} << 10U;

/// What a rank says of the operation that it is about to do; equal on all ranks, or it is refused.
/// The count of a group is 0.
struct Call {
  std::int32_t kind, type;
  std::uint64_t count;
  bool operator==(const Call&) const = default;
};

struct Seat {
  std::atomic<std::uint32_t> taken, finalized;
  std::int32_t size, gpu;  // how many ranks this one believes in, and where it computes
  std::uint64_t host;
  std::atomic<std::uint64_t> posted, written, read;  // operations; rounds of data
  Call call;                                         // of the last posted operation
  std::array<std::uint64_t, most_ranks> sends;       // bytes to each rank, where it is a group
};

struct SharedState {
  std::atomic<std::uint32_t> aborted;
  std::array<Seat, most_ranks> seats;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

class Segment {
 public:
  /// Sits down. Throws std::runtime_error, in words.
  Segment(std::string name, int rank, int size, int gpu, std::uint64_t host);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] Seat& own() const { return seat(rank_); }
  [[nodiscard]] Seat& seat(int rank) const { return state_->seats[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::byte* slot(int rank) const;
  [[nodiscard]] std::atomic<std::uint32_t>& aborted() const { return state_->aborted; }

  /// Whether `counter` of every seat has come to `value`.
  template <class Counter>
  [[nodiscard]] bool all(Counter Seat::*counter, std::uint64_t value) const {
    for (int r = 0; r < size_; ++r)
      if ((seat(r).*counter).load(std::memory_order_acquire) < value)
        return false;
    return true;
  }
  /// Takes the name away; the memory stays.
  void unlink() const;

 private:
  const std::string name_;
  const int rank_, size_;
  void* memory_ = nullptr;
  SharedState* state_ = nullptr;
};

}  // namespace emulated::nccl
