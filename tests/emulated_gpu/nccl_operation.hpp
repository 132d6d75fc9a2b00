// SPDX-License-Identifier: Apache-2.0
// One collective of the emulated NCCL, as the GPU's thread runs it.
//
// 1. advance() never blocks: it does what is possible and returns whether the operation has ended.
//    The caller repeats it until then, and the GPU does nothing else meanwhile (queue.hpp, 1).
//    Unlike on a real GPU, compute never runs during a collective, only before or after it.
// 2. First every rank publishes its call. If the calls differ, every rank fails and prints both;
//    the real library would hang or mix up the data.
// 3. Data goes through the slots of the segment, one piece per round. Sums are added in rank order
//    and in bf16 rounded at every addition, as in a ring; every rank gets the same result.
// 4. A failed operation does not end on its own, like a kernel that waits for a peer: it ends when
//    its communicator is aborted.
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

/// A message of a group.
struct Sent {
  const std::byte* at;
  std::size_t bytes;
};
struct Received {
  std::byte* at;
  std::size_t bytes;
};

/// `count` elements per rank: received by reduce-scatter, sent by all-gather, both by all-reduce. A
/// group has messages for every rank, in order, and is counted in bytes.
struct Arguments {
  Kind kind{};
  const std::byte* send = nullptr;
  std::byte* receive = nullptr;
  std::size_t count = 0;
  ncclDataType_t type{};
  std::vector<std::vector<Sent>> sends{};  ///< by rank
  std::vector<std::vector<Received>> receives{};
};

/// The state of the communicator that an operation reads and updates.
struct Surroundings {
  const Segment* segment = nullptr;
  const std::atomic<bool>* aborted = nullptr;  // by this rank
  std::function<void(ncclResult_t, std::string)> fail;
  std::uint64_t* operations = nullptr;  // started on this rank so far; the GPU's thread only
  std::uint64_t* rounds = nullptr;      // rounds of data so far; the GPU's thread only
};

class Operation {
 public:
  Operation(const Arguments& arguments, Surroundings surroundings)
      : arguments_(arguments), at_(std::move(surroundings)) {}

  /// Returns true when it has ended or its communicator was aborted.
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
  std::size_t count_ = 0;  // arguments_.count; in a group, the most bytes between two ranks
  std::size_t done_ = 0;   // elements of count_
};

}  // namespace emulated::nccl
