// SPDX-License-Identifier: Apache-2.0
// Shards inside a replica, sums across replicas (hybrid sharding). The ranks of a replica are
// consecutive; ranks with the same index in their replicas own the same shard.
//
//   reduce_scatter  inside the replica; then an all-reduce of the shard with the same rank of the
//                   other replicas
//   all_gather      inside the replica only
//   all_reduce      inside the replica, then across replicas; used only for the step's sums
//
// With Reduction::ordered or tree, whose order of additions this is not, a reduction is one
// all-reduce of the whole bucket over all ranks, by messages (docs/design/parallel.md, "Replicas").
// With Options::sums_inside both sums end inside the replica; optimizers with local steps
// (optim/local_steps.hpp) add across replicas by a Transfer among all ranks. Only then may replicas
// have different numbers of ranks.
//
// 1. Memory is allocated by the transport inside the replica. Across replicas it is sent by MPI
// messages, or by NCCL on GPUs, both of which read any memory.
// 2. All of the communicators run on the stream of the call, one after another.

#include "comm/transport/transports.hpp"

namespace trireme::comm {
namespace {

class ReplicatedShards final : public Shards {
 public:
  ReplicatedShards(View bucket, int rank, int size) : Shards(bucket, rank, size) {}

  std::unique_ptr<Shards> inside;        ///< of the bucket
  std::unique_ptr<Shards> shard_across;  ///< of this rank's shard
  std::unique_ptr<Shards> across;        ///< of the bucket
  std::unique_ptr<Shards> everywhere;    ///< of the bucket, with a guaranteed order
};

class ReplicatedCommunicator final : public Communicator {
 public:
  ReplicatedCommunicator(Transport transport,
                         Reduction reduction,
                         MpiWorld& world,
                         device::Device& device,
                         Options options)
      : Communicator(world.rank() - options.replicas.first(options.replicas.of(world.rank())),
                     options.replicas.size(options.replicas.of(world.rank()))),
        sums_inside_(options.sums_inside),
        replica_(world, options.replicas.of(world.rank()), !options.replicas.equal()) {
    TRIREME_EXPECT(
        options.replicas.ranks() == world.size() && (sums_inside_ || options.replicas.equal()),
        "{} for a world of {}", options.replicas.text(), world.size());
    options.replicas = {};
    const Transport messages =
        device.kind() == device::Kind::cuda ? Transport::nccl : Transport::mpi;
    inside_ = make_communicator(transport, reduction, replica_, device, options);
    set_note(inside_->note());
    if (sums_inside_) {
      options.bf16_sum_bytes = 0;
      everywhere_ = make_communicator(messages, Reduction::sum, world, device, options);
      return;
    }
    peers_.emplace(world, rank());
    across_ = make_communicator(messages, Reduction::sum, *peers_, device, options);
    if (reduction != Reduction::sum)
      everywhere_ = make_communicator(Transport::mpi, reduction, world, device, options);
  }

  [[nodiscard]] std::string_view name() const override { return inside_->name(); }

  device::Buffer allocate(std::size_t bytes, std::string_view what) override {
    return inside_->allocate(bytes, what);
  }
  [[nodiscard]] std::size_t peer_bytes() const override { return inside_->peer_bytes(); }

  std::unique_ptr<Shards> shards(View full) override {
    auto made = std::make_unique<ReplicatedShards>(full, rank(), size());
    made->inside = inside_->shards(full);
    if (sums_inside_)
      return made;
    made->shard_across = across_->shards(made->own);
    made->across = across_->shards(full);
    if (everywhere_)
      made->everywhere = everywhere_->shards(full);
    return made;
  }

  void enqueue(Operation operation,
               const Shards& shards,
               BucketIndex bucket,
               device::Stream& stream) override {
    const auto* table = dynamic_cast<const ReplicatedShards*>(&shards);
    TRIREME_EXPECT(table != nullptr, "shards of another transport, {} elements each",
                   shards.own.elements);
    const bool sums_everywhere = operation != Operation::all_gather && !sums_inside_;
    if (sums_everywhere && everywhere_)
      return everywhere_->all_reduce(*table->everywhere, bucket, stream);
    inside_->enqueue(operation, *table->inside, bucket, stream);
    if (sums_everywhere)
      across_->all_reduce(
          operation == Operation::all_reduce ? *table->across : *table->shard_across, bucket,
          stream);
  }

  std::optional<Replica> replica() override {
    return sums_inside_ ? std::optional(Replica{replica_, *everywhere_}) : std::nullopt;
  }

  std::unique_ptr<Transfer> transfer(const std::vector<MessageGroup>& groups) override {
    return inside_->transfer(groups);
  }

 private:
  const bool sums_inside_;
  MpiWorld replica_;               // the ranks of this replica
  std::optional<MpiWorld> peers_;  // the ranks that own the same shard
  std::unique_ptr<Communicator> inside_, across_, everywhere_;
};

}  // namespace

std::unique_ptr<Communicator> make_replicated_communicator(Transport transport,
                                                           Reduction reduction,
                                                           MpiWorld& world,
                                                           device::Device& device,
                                                           const Options& options) {
  return std::make_unique<ReplicatedCommunicator>(transport, reduction, world, device, options);
}

}  // namespace trireme::comm
