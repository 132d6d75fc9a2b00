// SPDX-License-Identifier: Apache-2.0
// Bulk collectives over buckets, enqueued on streams. One interface for one rank, MPI, shared
// memory and NCCL.
//
// A bucket's `full` view holds size() equal shards, and rank r's shard is the r-th. All collectives
// are in place. With replicas (Options::replicas), rank(), size() and shards refer to the ranks of
// one replica. Sums are over the ranks of all replicas, unless Options::sums_inside; gathers are
// inside one.
//
// 1. Buckets are allocated by allocate(), so that a transport can place them where peers reach
//    them (node-shared memory, a registered arena). allocate() is collective, and every rank
//    requests the same sizes in the same order.
// 2. `shards(full)` computes addresses and looks up registrations once; the result stays valid as
//    long as the memory, and must outlive the collectives enqueued with it. A step uses only such
//    tables, unless cached shards are off, for comparison.
// 3. A call enqueues its collective on `stream` and returns; all ranks enqueue the same ones in the
//    same order. The memory must not be touched until an event recorded on the stream after the
//    call is reached. A communicator runs one collective at a time: use one stream, or order
//    streams by events.
// 4. SUM only; for a mean, 1/size is folded into the optimizer's scale. Sums of fp32 and bf16 use
//    fp32 accumulators, and bf16 is rounded once (with replicas and Reduction::sum once inside and
//    once across them), unless NcclBf16Sum::library asks for NCCL's own sum; sums of int64 are
//    exact, whatever the order.
// 5. With Reduction::ordered the terms are added in rank order 0, 1, 2, …: ((g0 + g1) + g2) + …;
//    with Reduction::tree in pairs (base/pairwise.hpp): ((g0 + g1) + (g2 + g3)) + …. These two have
//    the same bits on every transport and placement: terms of one host are added on that host first
//    only if the order allows it (comm/collective/routes.hpp). With Reduction::sum each transport
//    has its own order, the same in every run (docs/design/parallel.md, "Reductions").
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/index.hpp"
#include "base/view.hpp"
#include "device/device.hpp"
#include "layout/replica_ranks.hpp"

#include "comm/collective/transfer.hpp"
#include "comm/config.hpp"
#include "comm/control/world.hpp"

namespace trireme::comm {

/// "2.27.3": the NCCL that this process runs with; "" in a build without CUDA.
std::string nccl_version();

/// Index, in error messages, of a collective on sums of a whole step, which belong to no bucket.
inline constexpr BucketIndex sums_of_the_step{-1};
/// Index, in error messages, of the messages of a Transfer (comm/collective/transfer.hpp).
inline constexpr BucketIndex matrices_of_the_step{-2};

/// The addresses of one bucket in local memory, and the transport's data about it. A transport that
/// reads peers' memory stores one address per rank of the host; the others need constant space.
class Shards {
 public:
  /// Requires: fp32, bf16 or int64, and elements that `size` divides.
  Shards(View bucket, int rank, int size);
  virtual ~Shards() = default;

  View full;
  View own;  ///< this rank's shard inside `full`

  [[nodiscard]] View of(int rank) const { return full.slice(rank * own.elements, own.elements); }
};

enum class Operation : std::uint8_t { reduce_scatter, all_gather, all_reduce };

class Communicator {
 public:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}
  virtual ~Communicator() = default;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  /// "self", "mpi", …; as in the deck.
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// A remark for the log about the choice of this transport, in one line; usually empty.
  [[nodiscard]] const std::string& note() const { return note_; }
  void set_note(std::string note) { note_ = std::move(note); }

  /// Zeroed memory for buckets. Collective. Throws DeviceError or CommError naming `what`.
  virtual device::Buffer allocate(std::size_t bytes, std::string_view what) = 0;

  /// Bytes of other ranks' memory read so far, which count as resident memory of this process.
  [[nodiscard]] virtual std::size_t peer_bytes() const { return 0; }

  /// Shapes: full = [size * shard], fp32, bf16 or int64. Requires: `full` is inside one buffer from
  /// allocate(), and its elements are divisible by size() and by the number of replicas.
  virtual std::unique_ptr<Shards> shards(View full) {
    return std::make_unique<Shards>(full, rank_, size_);
  }

  /// Sums `full` over the ranks and leaves the sum of this rank's shard in `own`; the rest of
  /// `full` is undefined afterwards. `bucket` names the collective in error messages.
  void reduce_scatter(const Shards& shards, BucketIndex bucket, device::Stream& stream) {
    enqueue(Operation::reduce_scatter, shards, bucket, stream);
  }
  /// Fills `full` with every rank's `own`.
  void all_gather(const Shards& shards, BucketIndex bucket, device::Stream& stream) {
    enqueue(Operation::all_gather, shards, bucket, stream);
  }
  /// Sums `full` over the ranks on every rank; the same bits on every rank.
  void all_reduce(const Shards& shards, BucketIndex bucket, device::Stream& stream) {
    enqueue(Operation::all_reduce, shards, bucket, stream);
  }
  virtual void enqueue(Operation operation,
                       const Shards& shards,
                       BucketIndex bucket,
                       device::Stream& stream) = 0;

  /// With Options::sums_inside: the ranks of this replica, and a communicator of all ranks, which
  /// sends any memory of the device.
  struct Replica {
    World& world;
    Communicator& everywhere;
  };
  virtual std::optional<Replica> replica() { return std::nullopt; }

  /// A transfer that is ordered with the collectives above, for transports that run one operation
  /// at a time. Null: use MPI messages on a separate communicator. Collective.
  virtual std::unique_ptr<Transfer> transfer(const std::vector<MessageGroup>& /*groups*/) {
    return nullptr;
  }

 private:
  const int rank_, size_;
  std::string note_;
};

struct Options {
  /// Largest single message, a multiple of 64; 0 chooses by placement: message_bytes().
  std::size_t chunk_bytes = 0;
  /// In sums of guaranteed order: bytes of each window of active messages, for any number of ranks.
  /// Source: as for a ring (comm/collective/ring.cpp).
  std::size_t exchange_bytes = std::size_t{4} << 20U;
  /// NCCL: whether to register the memory of buckets once, and the maximum number of
  /// multiprocessors that it may use (0: NCCL chooses).
  bool registers_memory = true;
  int most_blocks = 0;
  NcclBf16Sum bf16_sum = NcclBf16Sum::fp32;
  /// Bytes for the terms of one bf16 sum on a GPU; larger sums are computed in parts. 0: the run
  /// has no such sums.
  std::size_t bf16_sum_bytes = std::size_t{32} << 20U;
  /// Replicas of the sharded state. A single replica has all ranks of the world.
  layout::ReplicaRanks replicas{};
  /// Whether sums are over the ranks of one replica only.
  bool sums_inside = false;
};

/// Bytes of GPU memory that an NCCL communicator of `ranks` ranks needs for the terms of bf16 sums.
std::size_t bf16_term_bytes(const Options& options, int ranks);

/// Creates the transport that the deck names; `automatic` chooses by the world's size and
/// placement. Collectives use the world's deadline. The world must outlive the communicator.
/// Collective. Throws UserError when the transport does not fit the world (self with two ranks).
std::unique_ptr<Communicator> make_communicator(Transport transport,
                                                Reduction reduction,
                                                World& world,
                                                device::Device& device,
                                                const Options& options = {});

}  // namespace trireme::comm
