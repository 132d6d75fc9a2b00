// SPDX-License-Identifier: Apache-2.0
// Reduce-scatter in a guaranteed order: carries out the routes of comm/collective/routes.hpp, chunk
// by chunk. The bits depend on nothing but the order that the reduction defines.
//
// A rank has two kinds of visits. What needs no message starts: it is added up, or sent from where
// it lies, some chunks ahead of what others need. What needs messages continues: its additions are
// made one by one as the messages come in, in the order of the routes.
//
// 1. The ranks of a host read each other's buckets in place; only partial sums, and terms that
//    are alone on their host, are sent.
// 2. Sums are in fp32; bf16 is rounded once, when the sum is complete.
// 3. Scratch is allocated at construction and bounded for any number of ranks: messages under way
//    take at most `scratch_bytes` in each of three windows. A collective allocates nothing.
// 4. Windows are free of deadlock. Every rank's visits and every rank's receives are sorted by
//    (chunk, term or segment, block), so the least one that is open in all ranks always has its
//    messages sent, its receive posted and its slot free.
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
  /// Borrows `comm`, whose ranks those of `hosts` are, and `progress`. `chunk_bytes`: size of one
  /// message at most.
  Exchange(MPI_Comm comm,
           Progress& progress,
           Reduction reduction,
           const Hosts& hosts,
           device::Device& device,
           std::size_t chunk_bytes,
           std::size_t scratch_bytes);

  /// Shapes: full = [ranks * shard], fp32 or bf16; distances = one per rank of this host, in bytes:
  /// where its bucket lies, counted from this rank's. Leaves the sum of this rank's shard in place.
  /// Requires: the host's buckets stay as they are until all its ranks are done.
  void reduce_scatter(View full, std::span<const std::ptrdiff_t> distances);

  /// Of messages under way and of sums in the making.
  [[nodiscard]] std::size_t scratch_bytes() const { return scratch_.bytes(); }

 private:
  /// Messages of one kind that may be under way.
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
    /// Drops the entries at the front that have ended. Returns whether there was any.
    bool end_some();
  };
  struct Incoming {
    int from = 0;
    int block = 0;
    bool partial = false;
  };
  /// One dtype's routes, and how its blocks are cut.
  struct Table {
    Routes routes;
    std::vector<Incoming> incoming;  // of one chunk, in the order in which they are needed
    std::int64_t chunk_elements = 0;
  };
  /// Counted within a visit.
  struct Steps {
    std::uint32_t begin = 0, end = 0;
    [[nodiscard]] std::uint32_t count() const { return end - begin; }
  };
  /// One collective under way.
  struct Run;

  static Table make_table(Routes routes, DType dtype, std::size_t chunk_bytes);
  void take_scratch(device::Device& device, std::size_t scratch_bytes);
  void start(Run& run);
  void receive(Run& run);
  bool go_on(Run& run);
  bool gather_messages(Run& run, const Visit& visit);
  /// Some of the visit's steps; with the last of them the result is in `out`.
  void make_sums(const Run& run,
                 const Visit& visit,
                 View piece,
                 Steps which,
                 PartialSums& sums,
                 std::byte* out);
  void end_visit(Run& run, const Visit& visit, View piece);

  MPI_Comm comm_;
  Progress& progress_;
  int rank_ = 0;
  int size_ = 1;
  std::size_t message_bytes_ = 0;
  Table f32_, bf16_;
  device::Buffer scratch_;
  Window starting_, receiving_, passing_;
  std::vector<const std::byte*> sources_;
  PartialSums early_, late_;  // of what starts, and of what continues
};

}  // namespace trireme::comm
