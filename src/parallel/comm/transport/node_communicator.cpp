// SPDX-License-Identifier: Apache-2.0
// Shared memory inside a node, messages between nodes. With one node it is the transport
// `shared_memory`, with several `hierarchical`. The transport `mpi` has a node for every rank, and
// memory that no other rank reads.
//
// Nothing is copied into or out of buffers: a rank reads the peers' buckets in place. Only rank k
// writes the k-th shard, in its own bucket, and only rank k reads the k-th shard of any rank's
// bucket; so between two barriers no rank writes memory that another reads.
//
//   reduce_scatter  barrier; sum; (ring along the column, or exchange;) barrier
//   all_gather      (ring along the column, or messages;) arrive; wait for each peer and copy
//                   the shards that it has; barrier
//
// Between hosts, fp32 sums with Reduction::sum use rings if every host has the same number of
// ranks; all other sums use comm/collective/exchange.hpp. Every host sends each shard, or its part
// of each shard's sum, once. A guaranteed order may need more messages (routes.hpp).
//
// The last barrier keeps a rank from overwriting its bucket while a peer still reads it.
#include <algorithm>
#include <atomic>
#include <list>
#include <optional>
#include <utility>

#include "device/cpu/cpu_stream.hpp"

#include "comm/collective/accumulate.hpp"
#include "comm/collective/channels.hpp"
#include "comm/collective/exchange.hpp"
#include "comm/collective/hosts.hpp"
#include "comm/collective/ring.hpp"
#include "comm/control/requests.hpp"
#include "comm/transport/byte_range_set.hpp"
#include "comm/transport/node_barrier.hpp"
#include "comm/transport/transports.hpp"

namespace trireme::comm {
namespace {

constexpr int gather_tag = 13;

/// The communicators of a grid of ranks: a row per host, whose ranks share memory, and, if every
/// host has the same number of ranks, a column per local rank, whose ranks communicate over the
/// network in a ring. Ranks may be distributed to hosts in any order.
struct NodeGrid {
  OwnedComm node;    ///< the ranks of this host, ascending
  OwnedComm column;  ///< by host number; null if hosts have different numbers of ranks
  Hosts hosts;
  int row = 0;  ///< this rank's host
  int local_rank = 0;

  [[nodiscard]] int num_rows() const { return hosts.count(); }
  [[nodiscard]] int num_local() const { return static_cast<int>(hosts.members(row).size()); }
  [[nodiscard]] bool has_columns() const { return column.get() != MPI_COMM_NULL; }
};

/// Collective.
NodeGrid make_grid(MpiWorld& world, OwnedComm node) {
  double first = world.rank();                                   // of the host, which it identifies
  TRIREME_MPI(MPI_Bcast(&first, 1, MPI_DOUBLE, 0, node.get()));  // the split was just now
  const auto firsts = world.gather_all({&first, 1});
  const std::vector<int> host_of(firsts.begin(), firsts.end());
  NodeGrid grid{std::move(node), {}, Hosts(host_of)};
  grid.row = grid.hosts.host_of(world.rank());
  grid.local_rank = grid.node.rank();
  TRIREME_EXPECT(grid.local_rank == grid.hosts.local_of(world.rank()),
                 "rank {} is number {} of its host, not {}", world.rank(), grid.local_rank,
                 grid.hosts.local_of(world.rank()));
  if (grid.hosts.equal()) {
    MPI_Comm column = MPI_COMM_NULL;
    TRIREME_MPI(MPI_Comm_split(world.comm(), grid.local_rank, grid.row, &column));
    grid.column = OwnedComm(column);
  }
  return grid;
}

/// Memory of buckets, shared by the node.
class Windows final : public device::MemorySource {
 public:
  Windows(MPI_Comm node, MpiWorld& world, int local_rank)
      : node_(node), world_(world), local_rank_(local_rank) {}

  device::Buffer allocate(std::size_t bytes, std::string_view what) {
    if (bytes == 0)
      return {};
    const SharedSegment& segment = segments_.emplace_back(node_, world_, bytes, what);
    return {*this, segment.piece(local_rank_), bytes};
  }

  /// The segment that contains `full`. Throws ContractError if there is none.
  [[nodiscard]] const SharedSegment& segment_of(View full) const {
    for (const SharedSegment& segment : segments_) {
      const std::byte* start = segment.piece(local_rank_);
      if (full.data >= start && full.data + full.bytes() <= start + segment.bytes())
        return segment;
    }
    TRIREME_EXPECT(false, "a bucket outside the memory from allocate()");
    std::abort();
  }

 private:
  void release(std::byte* data, std::size_t /*bytes*/) noexcept override {
    segments_.remove_if(
        [&](const SharedSegment& segment) { return segment.piece(local_rank_) == data; });
  }

  MPI_Comm node_;
  MpiWorld& world_;
  int local_rank_;
  std::list<SharedSegment> segments_;
};

/// The addresses of the bucket on all ranks of the host.
class NodeShards final : public Shards {
 public:
  NodeShards(View bucket, int rank, int size, const NodeGrid& grid, const SharedSegment* segment)
      : Shards(bucket, rank, size) {
    if (segment == nullptr) {
      distances.push_back(0);
      return;
    }
    const std::byte* mine = segment->piece(grid.local_rank);
    for (int local = 0; local < grid.num_local(); ++local)
      distances.push_back(segment->piece(local) - mine);
  }

  std::vector<std::ptrdiff_t> distances;  ///< [local]: from this rank's bucket to that one's
  // Whether the other ranks' memory was read for a sum, or for a gather, and was counted.
  mutable bool read_to_sum = false, read_to_gather = false;
  std::vector<Channel> sent, received;  ///< of a gather between hosts without columns
};

/// By local rank: the owners of the shards that it has after the exchange between hosts.
std::vector<std::vector<int>> owners_by_local_rank(const NodeGrid& grid) {
  std::vector<std::vector<int>> owners(static_cast<std::size_t>(grid.num_local()));
  for (int owner = 0; owner < grid.hosts.ranks(); ++owner) {
    const int local = grid.hosts.local_of(grid.hosts.agent(grid.row, owner));
    owners[static_cast<std::size_t>(local)].push_back(owner);
  }
  return owners;
}

/// The ranks of this rank's column.
std::vector<int> column_of(const NodeGrid& grid) {
  std::vector<int> ranks;
  for (int row = 0; row < grid.num_rows() && grid.has_columns(); ++row)
    ranks.push_back(grid.hosts.members(row)[static_cast<std::size_t>(grid.local_rank)]);
  return ranks.empty() ? std::vector<int>{0} : ranks;
}

/// If hosts have different numbers of ranks, every owner sends its shard to its agent on every other
/// host, and the host's other ranks copy it from the agent. So a host receives each shard once.
void find_channels(NodeShards& shards, const NodeGrid& grid, int rank) {
  std::vector<Message> outgoing, incoming;
  for (int row = 0; row < grid.num_rows(); ++row)
    if (row != grid.row)
      outgoing.push_back({grid.hosts.agent(row, rank), shards.own});
  for (int owner = 0; owner < grid.hosts.ranks(); ++owner)
    if (owner != rank && grid.hosts.agent(grid.row, owner) == rank)
      incoming.push_back({owner, shards.of(owner)});
  shards.sent = channels_of(outgoing);
  shards.received = channels_of(incoming);
}

class NodeCommunicator final : public Communicator {
 public:
  NodeCommunicator(Transport transport,
                   Reduction reduction,
                   MpiWorld& world,
                   device::Device& device,
                   const Options& options,
                   NodeGrid grid,
                   std::size_t chunk_bytes)
      : Communicator(world.rank(), world.size()),
        device_(device),
        transport_(transport),
        reduction_(reduction),
        sum_(summation_of(reduction)),
        comm_(OwnedComm::duplicate(world.comm())),
        grid_(std::move(grid)),
        progress_(world.watchdog(), world.lane_part()),
        windows_(grid_.node.get(), world, grid_.local_rank),
        owners_at_(owners_by_local_rank(grid_)),
        sources_(static_cast<std::size_t>(grid_.num_local())),
        read_to_gather_(sources_.size()),
        ring_(grid_.has_columns() ? grid_.column.get() : MPI_COMM_SELF,
              progress_,
              column_of(grid_),
              device,
              chunk_bytes),
        exchange_(comm_.get(),
                  progress_,
                  reduction,
                  grid_.hosts,
                  device,
                  chunk_bytes,
                  options.exchange_bytes),
        channels_(comm_.get(), progress_, gather_tag, chunk_bytes) {
    if (shares_memory())
      barrier_.emplace(grid_.node.get(), world, progress_);
  }

  [[nodiscard]] std::string_view name() const override { return word(transport_); }

  device::Buffer allocate(std::size_t bytes, std::string_view what) override {
    return shares_memory() ? windows_.allocate(bytes, what) : device_.allocate(bytes, what);
  }

  [[nodiscard]] std::size_t peer_bytes() const override { return peer_bytes_; }

  std::unique_ptr<Shards> shards(View full) override {
    const SharedSegment* segment =
        shares_memory() && !full.empty() ? &windows_.segment_of(full) : nullptr;
    auto made = std::make_unique<NodeShards>(full, rank(), size(), grid_, segment);
    if (!grid_.has_columns()) {
      find_channels(*made, grid_, rank());
      channels_.reserve(made->sent, made->received);
    }
    return made;
  }

  void enqueue(Operation operation,
               const Shards& shards,
               BucketIndex bucket,
               device::Stream& stream) override {
    const auto* table = dynamic_cast<const NodeShards*>(&shards);
    TRIREME_EXPECT(table != nullptr, "shards of another transport in {}", word(operation));
    if (table->full.empty())
      return;
    device::cpu::stream_of(stream).run([this, operation, table, bucket] {
      const auto entered = progress_.enter(word(operation), bucket);
      if (operation != Operation::all_gather)
        reduce(*table);
      if (operation != Operation::reduce_scatter)
        gather(*table);
      meet();
    });
  }

 private:
  void reduce(const NodeShards& s) {
    if (grid_.num_rows() > 1 && s.full.dtype == DType::i64) {
      sum_integers(s.full);
      return;
    }
    meet();
    if (!std::exchange(s.read_to_sum, true))
      count_read(s, grid_.local_rank, read_to_sum_, sources_.size() - 1);
    const bool in_rings =
        grid_.has_columns() && reduction_ == Reduction::sum && s.full.dtype == DType::f32;
    if (grid_.num_rows() > 1 && !in_rings) {
      exchange_.reduce_scatter(s.full, s.distances);
      return;
    }
    if (shares_memory())
      for (const int owner : owners_at_[static_cast<std::size_t>(grid_.local_rank)]) {
        const View block = s.of(owner);
        std::ranges::transform(s.distances, sources_.begin(),
                               [&](std::ptrdiff_t distance) { return block.data + distance; });
        sum_(block.data, sources_, block.elements, block.dtype);
      }
    ring_.reduce_scatter(s.full, s.own.elements);
  }

  /// Exact sums over all ranks, for the norm and the loss of a step. MPI works on a copy, because
  /// after a timeout the collective is still active, and may receive a late rank's message.
  void sum_integers(View values) {
    auto* at = values.as<std::int64_t>();
    integers_.assign(at, at + values.elements);
    MPI_Request request = MPI_REQUEST_NULL;
    TRIREME_MPI(MPI_Iallreduce(MPI_IN_PLACE, integers_.data(), static_cast<int>(integers_.size()),
                               MPI_INT64_T, MPI_SUM, comm_.get(), &request));
    await(request, progress_);
    std::ranges::copy(integers_, at);
  }

  void gather(const NodeShards& s) {
    if (grid_.num_rows() > 1 && s.full.dtype == DType::i64)
      return;  // every rank has the sums
    if (grid_.has_columns())
      ring_.all_gather(s.full, s.own.elements);
    else
      channels_.exchange(s.sent, s.received);
    if (!shares_memory())
      return;
    barrier_->arrive();
    if (!std::exchange(s.read_to_gather, true))
      for (int local = 0; local < grid_.num_local(); ++local)
        if (local != grid_.local_rank)
          count_read(s, local, read_to_gather_[static_cast<std::size_t>(local)], 1);
    for (int step = 1; step < grid_.num_local(); ++step) {
      const auto local = static_cast<std::size_t>((grid_.local_rank + step) % grid_.num_local());
      barrier_->wait_for(static_cast<int>(local));
      for (const int owner : owners_at_[local]) {
        const View shard = s.of(owner);
        copy_past_caches(shard.data, shard.data + s.distances[local], shard.bytes());
      }
    }
  }

  /// With the ranks that read this one's memory.
  void meet() {
    if (barrier_)
      barrier_->arrive_and_wait();
  }
  [[nodiscard]] bool shares_memory() const { return transport_ != Transport::mpi; }
  /// Counts the bytes of the shards that rank `local` has for the host, read from the memory of
  /// `others` other ranks.
  void count_read(const NodeShards& s, int local, ByteRangeSet& covered, std::size_t others) {
    if (others == 0)
      return;
    for (const int owner : owners_at_[static_cast<std::size_t>(local)])
      peer_bytes_ += others * covered.add(s.of(owner).data, s.own.bytes());
  }

  device::Device& device_;
  Transport transport_;
  Reduction reduction_;
  Summation sum_;
  OwnedComm comm_;
  NodeGrid grid_;
  Progress progress_;
  std::optional<NodeBarrier> barrier_;  // where memory is shared
  Windows windows_;
  std::vector<std::vector<int>> owners_at_;  // [local]: owners of its shards
  std::vector<const std::byte*> sources_;    // [local]
  std::atomic<std::size_t> peer_bytes_{0};
  // Ranges that were read, as addresses in this rank's memory, whose offsets in a bucket equal
  // those of the other ranks. [local]: the rank whose memory is read.
  ByteRangeSet read_to_sum_;
  std::vector<ByteRangeSet> read_to_gather_;
  Ring ring_;
  Exchange exchange_;
  Channels channels_;
  std::vector<std::int64_t> integers_;
};

}  // namespace

std::unique_ptr<Communicator> make_node_communicator(Transport transport,
                                                     Reduction reduction,
                                                     MpiWorld& world,
                                                     device::Device& device,
                                                     const Options& options,
                                                     OwnedComm node) {
  const bool one_host = transport == Transport::mpi && world.local_size() == world.size();
  return std::make_unique<NodeCommunicator>(transport, reduction, world, device, options,
                                            make_grid(world, std::move(node)),
                                            message_bytes(options, one_host));
}

}  // namespace trireme::comm
