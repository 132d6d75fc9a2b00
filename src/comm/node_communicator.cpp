// SPDX-License-Identifier: Apache-2.0
// Shared memory inside a node, messages between nodes. With one node it is the transport
// `shared_memory`, with several `hierarchical`.
//
// Nothing is copied in or out: a rank reads the peers' buckets where they are. The k-th shard of a
// bucket is written by rank k only, in its own bucket and in place, and the k-th shard of anybody's
// bucket is read by rank k only; so between two meeting points no rank writes what another reads.
//
//   reduce_scatter  meet; sum; (ring along the column;) meet
//   all_gather      (ring along the column;) reach; wait for each peer and copy its shards; meet
//
// The last meeting lets nobody leave, and overwrite its bucket, while a peer still reads it.
#include <algorithm>
#include <list>
#include <utility>

#include "device/cpu/cpu_stream.hpp"

#include "comm/accumulate.hpp"
#include "comm/exchange.hpp"
#include "comm/node_barrier.hpp"
#include "comm/ring.hpp"
#include "comm/transports.hpp"

namespace trireme::comm {
namespace {

/// The node's bucket memory.
class Windows final : public device::MemorySource {
 public:
  Windows(MPI_Comm node, Progress& progress, int local_rank)
      : node_(node), progress_(progress), local_rank_(local_rank) {}

  device::Buffer allocate(std::size_t bytes, std::string_view what) {
    if (bytes == 0)
      return {};
    const SharedSegment& segment = segments_.emplace_back(node_, progress_, bytes, what);
    return {*this, segment.piece(local_rank_), bytes};
  }

  /// Of one rank, all segments together.
  [[nodiscard]] std::size_t bytes() const {
    std::size_t sum = 0;
    for (const SharedSegment& segment : segments_) sum += segment.bytes();
    return sum;
  }

  /// The segment in which `full` lies. Throws ContractError when there is none.
  [[nodiscard]] const SharedSegment& holding(View full) const {
    for (const SharedSegment& segment : segments_) {
      const std::byte* start = segment.piece(local_rank_);
      if (full.data >= start && full.data + full.bytes() <= start + segment.bytes())
        return segment;
    }
    TRIREME_EXPECT(false, "a bucket outside the memory that allocate() gave");
    std::abort();
  }

 private:
  void release(std::byte* data, std::size_t /*bytes*/) noexcept override {
    segments_.remove_if(
        [&](const SharedSegment& segment) { return segment.piece(local_rank_) == data; });
  }

  MPI_Comm node_;
  Progress& progress_;
  int local_rank_;
  std::list<SharedSegment> segments_;
};

/// All addresses that the collectives on one bucket need.
class NodeShards final : public Shards {
 public:
  struct Copy {
    View to;
    const std::byte* from;
  };

  NodeShards(View bucket, int rank, int size, const NodeGrid& grid, const SharedSegment* segment)
      : Shards(bucket, rank, size), readable(static_cast<std::size_t>(size), nullptr) {
    const auto column = static_cast<std::size_t>(grid.local_rank);
    for (const auto& row : grid.members)
      column_blocks.push_back(ranks[static_cast<std::size_t>(row[column])]);
    if (segment == nullptr)
      return;
    const auto in_piece_of = [&](int local, const View& shard) {
      return segment->piece(local) + (shard.data - segment->piece(grid.local_rank));
    };
    for (const View& block : column_blocks)
      for (int local = 0; local < grid.num_columns(); ++local)
        sources.push_back(in_piece_of(local, block));
    for (int local = 0; local < grid.num_columns(); ++local) {
      const int peer =
          grid.members[static_cast<std::size_t>(grid.row)][static_cast<std::size_t>(local)];
      readable[static_cast<std::size_t>(peer)] = in_piece_of(local, own);
    }
    for (int step = 1; step < grid.num_columns(); ++step) {
      const int local = (grid.local_rank + step) % grid.num_columns();
      for (const auto& row : grid.members) {
        const View shard = ranks[static_cast<std::size_t>(row[static_cast<std::size_t>(local)])];
        copies.push_back({shard, in_piece_of(local, shard)});
      }
    }
  }

  std::vector<View> column_blocks;         ///< [row]: the shard of this column's rank there
  std::vector<const std::byte*> sources;   ///< [row][local]: that shard in a peer's bucket
  std::vector<const std::byte*> readable;  ///< [world rank]: own shard in its bucket, or null
  std::vector<Copy> copies;  ///< [step][row]: what a gather copies, nearest peer first
};

class NodeCommunicator final : public Communicator {
 public:
  NodeCommunicator(Transport transport,
                   Reduction reduction,
                   MpiWorld& world,
                   device::Device& device,
                   const Options& options,
                   NodeGrid grid)
      : transport_(transport),
        reduction_(reduction),
        sum_(summation_of(reduction)),
        comm_(OwnedComm::duplicate(world.comm())),
        rank_(world.rank()),
        size_(world.size()),
        grid_(std::move(grid)),
        progress_(world.roll()),
        barrier_(grid_.node.get(), progress_),
        windows_(grid_.node.get(), world.progress(), grid_.local_rank),
        ring_(grid_.column.get(), progress_, device, message_bytes(options, false)),
        exchange_(grid_.num_rows() > 1 ? comm_.get() : MPI_COMM_SELF,
                  progress_,
                  summation_of(reduction),
                  device,
                  message_bytes(options, false)) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::string_view name() const override { return word(transport_); }

  device::Buffer allocate(std::size_t bytes, std::string_view what) override {
    return windows_.allocate(bytes, what);
  }

  [[nodiscard]] std::size_t peer_bytes() const override {
    return windows_.bytes() * static_cast<std::size_t>(grid_.num_columns() - 1);
  }

  std::unique_ptr<Shards> shards(View full) override {
    expect_bucket(full, size_);
    return std::make_unique<NodeShards>(full, rank_, size_, grid_,
                                        full.empty() ? nullptr : &windows_.holding(full));
  }

  void reduce_scatter(const Shards& shards, BucketIndex bucket, device::Stream& stream) override {
    run("reduce_scatter", shards, bucket, stream, [](NodeCommunicator& self, const NodeShards& s) {
      self.reduce(s);
      self.barrier_.meet();
    });
  }

  void all_gather(const Shards& shards, BucketIndex bucket, device::Stream& stream) override {
    run("all_gather", shards, bucket, stream, [](NodeCommunicator& self, const NodeShards& s) {
      self.gather(s);
      self.barrier_.meet();
    });
  }

  void all_reduce(const Shards& shards, BucketIndex bucket, device::Stream& stream) override {
    run("all_reduce", shards, bucket, stream, [](NodeCommunicator& self, const NodeShards& s) {
      self.reduce(s);
      self.gather(s);
      self.barrier_.meet();
    });
  }

 private:
  using Body = void (*)(NodeCommunicator&, const NodeShards&);

  void run(const char* operation,
           const Shards& shards,
           BucketIndex bucket,
           device::Stream& stream,
           Body body) {
    const auto* table = dynamic_cast<const NodeShards*>(&shards);
    TRIREME_EXPECT(table != nullptr, "shards of another transport in {}", operation);
    if (table->full.empty())
      return;
    device::cpu::stream_of(stream).run([this, operation, table, bucket, body] {
      const auto entered = progress_.enter(operation, bucket);
      body(*this, *table);
    });
  }

  void reduce(const NodeShards& s) {
    barrier_.meet();
    if (grid_.num_rows() > 1 && (reduction_ != Reduction::sum || s.full.dtype != DType::f32)) {
      exchange_.reduce_scatter(s.ranks, s.readable);
      return;
    }
    const auto num_local = static_cast<std::size_t>(grid_.num_columns());
    for (std::size_t row = 0; row < s.column_blocks.size(); ++row) {
      const View block = s.column_blocks[row];
      sum_(block.data, std::span(s.sources).subspan(row * num_local, num_local), block.elements,
           block.dtype);
    }
    ring_.reduce_scatter(s.column_blocks);
  }

  void gather(const NodeShards& s) {
    ring_.all_gather(s.column_blocks);
    barrier_.reach();
    auto copy = s.copies.begin();
    for (int step = 1; step < grid_.num_columns(); ++step) {
      barrier_.wait_for((grid_.local_rank + step) % grid_.num_columns());
      for (int row = 0; row < grid_.num_rows(); ++row, ++copy)
        copy_past_caches(copy->to.data, copy->from, copy->to.bytes());
    }
  }

  Transport transport_;
  Reduction reduction_;
  Summation sum_;
  OwnedComm comm_;
  int rank_;
  int size_;
  NodeGrid grid_;
  Progress progress_;
  NodeBarrier barrier_;
  Windows windows_;
  Ring ring_;
  Exchange exchange_;
};

}  // namespace

std::unique_ptr<Communicator> make_node_communicator(Transport transport,
                                                     Reduction reduction,
                                                     MpiWorld& world,
                                                     device::Device& device,
                                                     const Options& options,
                                                     OwnedComm node) {
  return std::make_unique<NodeCommunicator>(transport, reduction, world, device, options,
                                            make_grid(world, std::move(node)));
}

}  // namespace trireme::comm
