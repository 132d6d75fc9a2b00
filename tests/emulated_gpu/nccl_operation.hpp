// SPDX-License-Identifier: Apache-2.0
// One collective of the emulated NCCL, as the GPU's thread does it.
//
// 1. advance() never blocks: it does what it can and says whether the operation has ended. Who runs
//    it asks until it has, and the GPU does nothing else meanwhile (queue.hpp, 1): unlike on a real
//    one, compute does not go on beside a collective, it goes before or after it.
// 2. First every rank posts what it is about to do. Where they differ, every rank fails with both
//    readings; the real library would hang, or mix them up.
// 3. Data go through the slots of the segment, a piece per round. Sums are added in rank order, and
//    in bf16 rounded at every addition, as on the way around a ring; every rank gets the same.
// 4. An operation that has failed never ends by itself, as a kernel that waits for a peer: it ends
//    when its communicator is aborted.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <nccl.h>

#include "emulated_gpu/nccl_segment.hpp"

namespace emulated::nccl {

enum class Kind : std::int32_t { reduce_scatter, all_gather, all_reduce, group };
const char* name(Kind kind);

std::size_t bytes_of(ncclDataType_t type);

/// Of a group.
struct Sent {
  const std::byte* at;
  std::size_t bytes;
};
struct Received {
  std::byte* at;
  std::size_t bytes;
};

/// `count` elements of each rank: received by reduce-scatter, sent by all-gather, both by
/// all-reduce. A group has pieces for every rank, in order, and is counted in bytes.
struct Arguments {
  Kind kind{};
  const std::byte* send = nullptr;
  std::byte* receive = nullptr;
  std::size_t count = 0;
  ncclDataType_t type{};
  std::vector<std::vector<Sent>> sends{};  ///< by rank
  std::vector<std::vector<Received>> receives{};
};

/// What an operation asks its communicator, and reports to it.
struct Surroundings {
  const Segment* segment = nullptr;
  const std::atomic<bool>* aborted = nullptr;  // by this rank
  std::function<void(ncclResult_t, std::string)> fail;
  std::uint64_t* operations = nullptr;  // begun so far on this rank; the GPU's thread only
  std::uint64_t* rounds = nullptr;      // of data so far; the GPU's thread only
};

class Operation {
 public:
  Operation(const Arguments& arguments, Surroundings surroundings)
      : arguments_(arguments), at_(std::move(surroundings)) {}

  /// True when it has ended, or its communicator was aborted.
  bool advance();

 private:
  enum class Stage { post, meet, write, gather, leave, failed };

  void fail(ncclResult_t status, std::string words);
  void post();
  void meet();
  void write();
  void gather();
  void meet_group();
  [[nodiscard]] std::size_t piece() const;
  [[nodiscard]] std::size_t pieces_per_slot() const;

  const Arguments arguments_;
  const Surroundings at_;
  Stage stage_ = Stage::post;
  std::uint64_t number_ = 0;
  std::size_t count_ = 0;  // as arguments_.count; of a group, the most bytes between two ranks
  std::size_t done_ = 0;   // elements of count_
};

}  // namespace emulated::nccl
