// SPDX-License-Identifier: Apache-2.0
// Shared memory of the ranks of one emulated NCCL communicator: a POSIX segment with one seat and
// one data slot per rank. The ranks are processes of one host.
//
// 1. The unique id names the segment. The first rank creates it, filled with zeros, which is the
//    initial value of every member. The last rank to join unlinks the name, and so does a rank
//    that stops waiting, so no name remains after the communicator's start.
// 2. Only its own rank writes a seat, but any rank may set `aborted`. Counters only grow. A rank
//    that has seen a counter also sees what the other rank wrote before it raised the counter.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace emulated::nccl {

inline constexpr int most_ranks = 16;
inline constexpr std::size_t slot_bytes = std::size_t{256} << 10U;

/// A rank's description of its next operation. It must be equal on all ranks, otherwise the
/// operation is refused. The count of a group is 0.
struct Call {
  std::int32_t kind, type;
  std::uint64_t count;
  bool operator==(const Call&) const = default;
};

struct Seat {
  std::atomic<std::uint32_t> taken, finalized;
  std::int32_t size, gpu;  // number of ranks that this rank was given, and its GPU
  std::uint64_t host;
  std::atomic<std::uint64_t> posted, written, read;  // operations; rounds of data
  Call call;                                         // of the last posted operation
  std::array<std::uint64_t, most_ranks> sends;       // in a group, the bytes to each rank
};

struct SharedState {
  std::atomic<std::uint32_t> aborted;
  std::array<Seat, most_ranks> seats;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

class Segment {
 public:
  /// Joins the communicator. Throws std::runtime_error with a message.
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

  /// Whether `counter` has reached `value` in every seat.
  template <class Counter>
  [[nodiscard]] bool all(Counter Seat::*counter, std::uint64_t value) const {
    for (int r = 0; r < size_; ++r)
      if ((seat(r).*counter).load(std::memory_order_acquire) < value)
        return false;
    return true;
  }
  /// Removes the name; the memory stays mapped.
  void unlink() const;

 private:
  const std::string name_;
  const int rank_, size_;
  void* memory_ = nullptr;
  SharedState* state_ = nullptr;
};

}  // namespace emulated::nccl
