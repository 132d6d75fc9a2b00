// SPDX-License-Identifier: Apache-2.0
// Reduce-scatter in a guaranteed order: executes the routes of comm/collective/routes.hpp, chunk by
// chunk. The bits depend only on the order that the reduction defines.
//
// A rank has two kinds of tasks. A task that needs no message starts a sum: its terms are added
// up, or sent from the bucket, some chunks before other ranks need them. A task that needs
// messages continues a sum, when they have all arrived.
//
// 1. The ranks of a host read each other's buckets in place; only partial sums, and single terms of
//    a host, are sent.
// 2. Sums are in fp32; bf16 is rounded once, when the sum is complete.
// 3. Scratch is allocated at construction: active messages take at most `scratch_bytes` in each of
//    three windows, or the messages of one task if these are more. A collective allocates nothing.
// 4. Windows cannot deadlock. Every rank's tasks and receives are sorted by chunk, then by term or
//    segment, and receives are posted for a whole task. So the first unfinished task over all ranks
//    always has its messages sent, its receives posted and its slot free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <mpi.h>

#include "base/view.hpp"
#include "device/device.hpp"

#include "comm/collective/accumulate.hpp"
#include "comm/collective/routes.hpp"
#include "comm/control/progress.hpp"

namespace trireme::comm {

class Exchange {
 public:
  /// Borrows `comm`, which has the ranks of `hosts`, and `progress`. `chunk_bytes`: the largest
  /// size of one message.
  Exchange(MPI_Comm comm,
           Progress& progress,
           Reduction reduction,
           const Hosts& hosts,
           device::Device& device,
           std::size_t chunk_bytes,
           std::size_t scratch_bytes);

  /// Shapes: full = [ranks * shard], fp32 or bf16; distances = one per rank of this host: the bytes
  /// from this rank's bucket to that rank's. Writes the sum of this rank's shard in place.
  /// Requires: the host's buckets do not change until all its ranks have returned.
  void reduce_scatter(View full, std::span<const std::ptrdiff_t> distances);

 private:
  /// A bounded set of active messages of one kind.
  struct Window {
    std::vector<MPI_Request> requests;
    std::byte* memory = nullptr;
    std::int64_t begun = 0, ended = 0;

    [[nodiscard]] std::size_t slot(std::int64_t k) const {
      return static_cast<std::size_t>(k) % requests.size();
    }
    [[nodiscard]] bool full() const {
      return begun - ended == static_cast<std::int64_t>(requests.size());
    }
    /// Removes the completed messages at the front. Returns whether there were any.
    bool end_some();
  };
  struct Incoming {
    int from = 0;
    int block = 0;
    bool partial = false;
    int tag = 0;
  };
  /// The routes of one dtype, and the size of its chunks.
  struct Table {
    Routes routes;
    std::vector<Incoming> incoming;  // messages of one chunk, in the order in which they are needed
    std::int64_t chunk_elements = 0;
  };
  /// State of one collective.
  struct Run;

  static Table make_table(Routes routes, DType dtype, std::size_t chunk_bytes);
  void take_scratch(device::Device& device, std::size_t scratch_bytes);
  void start(Run& run);
  void receive(Run& run);
  bool continue_sums(Run& run);
  void make_sum(const Run& run, const BlockTask& task, View piece, std::byte* out);

  MPI_Comm comm_;
  Progress& progress_;
  const int rank_, size_;
  std::size_t message_bytes_ = 0;
  Table f32_, bf16_;
  device::Buffer scratch_;
  Window starting_, receiving_, passing_;
  std::vector<const std::byte*> sources_;
};

}  // namespace trireme::comm
